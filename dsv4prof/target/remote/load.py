"""A small load for a server that has nothing to do: an idle server runs no step, and a profiler would record nothing.

Short greedy requests of token numbers, a few at a time, one after another until it is told to stop. Prompts differ, or
a prefix cache would answer for the prefill.
"""

from __future__ import annotations

import random
import threading
import time
import uuid
from contextlib import suppress
from typing import Any

from dsv4prof.target.remote.client import Client, NoAnswerError
from dsv4prof.target.remote.facts import ServerFacts

_PROMPT_TOKENS = 12
_NEW_TOKENS = 16
# Any vocabulary has these, and they are no special tokens of known tokenizers.
_FIRST_TOKEN, _LAST_TOKEN = 20, 250
_PER_REPLICA = 2
_MOST = 64
_TIMEOUT = 60.0
_ABORT_TIMEOUT = 2.0
_PAUSE_AFTER_REFUSAL = 0.5


class Load:
    """Keeps requests running between `start` and `halt`."""

    def __init__(self, client: Client, facts: ServerFacts) -> None:
        self._client = client
        self._facts = facts
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._running: set[str] = set()
        self.served = 0
        self.refusal: str | None = None

    def start(self) -> None:
        # Daemons: a request that hangs must not keep the command from ending.
        self._threads = [
            threading.Thread(target=self._send, name=f"dsv4prof-load-{number}", daemon=True)
            for number in range(min(_MOST, _PER_REPLICA * self._facts.dp))
        ]
        for thread in self._threads:
            thread.start()

    def halt(self) -> None:
        """No further request, and an end to those that run, where the server takes one."""
        self._over.set()
        with self._lock:
            running = list(self._running)
        # One that does not answer is not asked for the next one.
        with suppress(NoAnswerError):
            for name in running if self._facts.kind == "sglang" else []:
                self._client.post("/abort_request", {"rid": name}, timeout=_ABORT_TIMEOUT)

    def join(self, *, wait_s: float) -> None:
        """Wait a little for the requests that were halted."""
        deadline = time.monotonic() + wait_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _send(self) -> None:
        # Unseeded: a second attach with the first one's prompts would find them in the prefix cache.
        numbers = random.Random()
        while not self._over.is_set():
            prompt = [numbers.randint(_FIRST_TOKEN, _LAST_TOKEN) for _ in range(_PROMPT_TOKENS)]
            name = f"dsv4prof-{uuid.uuid4().hex}"
            path, body = self._request(prompt, name)
            with self._lock:
                self._running.add(name)
            try:
                answer = self._client.post(path, body, timeout=_TIMEOUT)
                refusal = None if answer.ok else f"HTTP {answer.status} {answer.text}".strip()
            except NoAnswerError as error:
                refusal = error.message
            with self._lock:
                self._running.discard(name)
                self.served += refusal is None
                # What was aborted was not refused.
                self.refusal = self.refusal or (None if self._over.is_set() else refusal)
            if refusal is not None:
                self._over.wait(_PAUSE_AFTER_REFUSAL)

    def _request(self, prompt: list[int], name: str) -> tuple[str, dict[str, Any]]:
        if self._facts.kind == "sglang":
            sampling = {"max_new_tokens": _NEW_TOKENS, "temperature": 0, "ignore_eos": True}
            return "/generate", {"input_ids": prompt, "sampling_params": sampling, "rid": name}
        return "/v1/completions", {
            "model": self._facts.model,
            "prompt": prompt,
            "max_tokens": _NEW_TOKENS,
            "temperature": 0,
            **({"ignore_eos": True} if self._facts.kind == "dsv4prof" else {}),
        }
