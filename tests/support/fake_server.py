"""A server that answers `/start_profile` as SGLang 0.5.23 was seen to, in this process, with files of a few events."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from traces import document, note, op, write

INFO = {
    "version": "0.5.23",
    "served_model_name": "/models/tiny",
    "device": "cpu",
    "tp_size": 1,
    "dp_size": 1,
    "pp_size": 1,
    "ep_size": 1,
    "nnodes": 1,
    "enable_dp_attention": False,
    "speculative_algorithm": None,
    "internal_states": [{}],
}
Respond = tuple[int, Any]


@dataclass
class FakeServer:
    """A served step for every `/generate`; each rank of `ranks` (`TP-0-DP-1`) records it.

    `answers` overrules a path; `busy` is what `/v1/loads` tells; `silent` ranks never write; `half` ones write half a
    file; `requests` is every (method, path, body) in order. `saving_s` is how long a save takes, in which no stop is
    answered; `failed_saves` are those that found no folder, which ends a real server.
    """

    ranks: tuple[str, ...] = ("TP-0",)
    info: dict[str, Any] = field(default_factory=dict)
    answers: dict[str, Respond | Callable[[], Respond]] = field(default_factory=dict)
    busy: int = 0
    api_key: str | None = None
    silent: tuple[str, ...] = ()
    half: tuple[str, ...] = ()
    step_s: float = 0.01
    saving_s: float = 0.0
    failed_saves: list[Path] = field(default_factory=list)
    requests: list[tuple[str, str, Any]] = field(default_factory=list)
    armed: dict[str, Any] | None = None
    recording: bool = False
    steps: list[str] = field(default_factory=list)

    def __enter__(self) -> FakeServer:
        fake, self._lock = self, threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.answer("GET")

            def do_POST(self) -> None:
                self.answer("POST")

            def answer(self, method: str) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, content = fake.respond(
                    method, self.path, json.loads(body) if body else None, self.headers.get("Authorization")
                )
                data = content if isinstance(content, bytes) else json.dumps(content).encode()
                with suppress(BrokenPipeError, ConnectionResetError):
                    self.send_response(status)
                    self.send_header("Content-Length", str(len(data)))
                    self.end_headers()
                    self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def paths(self, start: str = "") -> list[str]:
        return [path for _, path, _ in self.requests if path.startswith(start)]

    @property
    def profiling(self) -> bool:
        """Whether it records, or would begin to with some later step."""
        return self.recording or (self.armed is not None and (self.armed.get("start_step") or 0) < 1 << 40)

    def respond(self, method: str, path: str, body: Any, authorization: str | None) -> Respond:
        self.requests.append((method, path, body))
        if self.api_key is not None and authorization != f"Bearer {self.api_key}":
            return 401, {"error": "Unauthorized"}
        if path in self.answers:
            answer = self.answers[path]
            return answer() if callable(answer) else answer
        if path == "/generate":
            time.sleep(self.step_s)
        if path == "/abort_request":
            return 200, b""
        with self._lock:
            return self._act(path, body)

    def _act(self, path: str, body: Any) -> Respond:
        if path == "/server_info":
            return 200, {**INFO, **self.info}
        if path == "/model_info":
            return 200, {"served_model_name": "/models/tiny", "is_generation": True}
        if path == "/v1/loads":
            return 200, {"loads": [{"num_running_reqs": self.busy, "num_waiting_reqs": 0}]}
        if path == "/generate":
            self._step("EXTEND")
            self._step("DECODE")
            return 200, {"output_ids": [1]}
        if path == "/start_profile":
            if self.recording:
                return 500, b"Internal Server Error"
            self.armed, self.steps = body, []
            return 200, b"Start profiling.\n"
        if path == "/stop_profile":
            if not self.recording:
                return 500, b"Internal Server Error"
            self._save("")
            return 200, b"Stop profiling. This will take some time.\n"
        return 404, {"detail": "Not Found"}

    def _step(self, mode: str) -> None:
        wanted = self.armed
        if wanted is None or (wanted.get("start_step") or 0) > 1 << 40:
            return
        if self.recording and wanted.get("profile_by_stage") and self.steps and self.steps[-1] != mode:
            self._save(f"-{self.steps[-1]}")
        if wanted.get("profile_by_stage") and mode in wanted.setdefault("seen", []) and not self.recording:
            return
        wanted.setdefault("seen", []).append(mode)
        self.recording = True
        self.steps.append(mode)
        if wanted.get("num_steps") and len(self.steps) >= wanted["num_steps"]:
            self._save(f"-{mode}" if wanted.get("profile_by_stage") else "")

    def _save(self, suffix: str) -> None:
        assert self.armed is not None
        steps, self.steps, self.recording = self.steps, [], False
        folder = Path(self.armed["output_dir"])
        folder.mkdir(parents=True, exist_ok=True)
        if self.saving_s:
            time.sleep(self.saving_s)
            if not folder.is_dir():
                self.failed_saves.append(folder)
                return
        for rank in self.ranks:
            if rank in self.silent:
                continue
            path = folder / f"{self.armed['profile_id']}-{rank}{suffix}.trace.json.gz"
            write(path, document(recorded(steps), rank=0, world=1))
            if rank in self.half:
                path.write_bytes(path.read_bytes()[:-40])
        if not self.armed.get("profile_by_stage"):
            self.armed = None


def recorded(steps: list[str]) -> list[dict[str, Any]]:
    """What a rank notes of its steps: a range each, and operators in it."""
    events = []
    for place, mode in enumerate(steps):
        events += [note(f"step[{mode} bs=1]", 1000 * place, 900), op("aten::mm", 1000 * place + 10, 500)]
    return events
