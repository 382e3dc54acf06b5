"""The engine's side of a check, computed once in a process: a check of a changed folder then only reads and compares.

What the check asks of the engine is remembered by all that decides the answer: the files of the checkpoint, the sizes,
and every call in its order with what it was given. A check that asks anything else has the engine compute it, so a
changed weight, prompt or config is never answered with what an unchanged one gave.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import dsv4_engine.check.forwards as forwards
import dsv4_engine.check.serving as serving
from dsv4_engine.batch import ForwardBatch
from dsv4_engine.engine import Engine
from dsv4_engine.options import EngineOptions
from dsv4_engine.request import RequestResult
from dsv4_engine.runner import ModelRunner

_outputs: dict[bytes, Any] = {}
_served: dict[bytes, list[RequestResult]] = {}


def remember_forwards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the checks of this test, in this process, compute only what no test before has asked for."""
    monkeypatch.setattr(forwards, "make_runner", _make_runner(forwards.make_runner))
    monkeypatch.setattr(serving, "Engine", _RememberedEngine)


def _digest(*values: object) -> bytes:
    """Of values with their types; tensors by dtype, shape and content."""
    found = hashlib.sha256()
    for value in values:
        if isinstance(value, torch.Tensor):
            found.update(f"{value.dtype}{tuple(value.shape)}".encode())
            found.update(value.detach().contiguous().view(-1).view(torch.uint8).numpy())
        elif isinstance(value, bytes):
            found.update(value)
        else:
            assert value is None or isinstance(value, (int, float, str, tuple, list, dict)), type(value)
            found.update(repr(value).encode())
        found.update(b";")
    return found.digest()


def _checkpoint(folder: Path) -> bytes:
    """Of a checkpoint's files; a missing one counts as empty, and whoever computes says that it is missing."""
    files = [folder / name for name in ("config.json", "model.safetensors")]
    return _digest(*(path.read_bytes() if path.exists() else None for path in files))


def _make_runner(make: Callable[..., ModelRunner]) -> Callable[..., _RememberedRunner]:
    def made(golden: Any, rank: Any, *, context_len: int | None = None, quantised: bool = False) -> _RememberedRunner:
        folder = golden.quant_folder if quantised else golden.folder
        sizes = (len(golden.prompts), context_len or golden.context_len, golden.num_drafts, quantised, str(rank.device))
        assert rank.group.size == 1
        key = _digest(_checkpoint(folder), sizes)
        return _RememberedRunner(key, lambda: make(golden, rank, context_len=context_len, quantised=quantised))

    return made


class _RememberedRunner:
    """Answers as a runner does that has had the same calls; one is made, and told them all, once it must compute."""

    def __init__(self, key: bytes, make: Callable[[], ModelRunner]) -> None:
        self._key, self._make = key, make
        self._runner: ModelRunner | None = None
        self._calls: list[Callable[[ModelRunner], Any]] = []

    def forward_target(self, batch: ForwardBatch, **rows: Any) -> Any:
        return self._answer("target", (batch,), lambda runner: runner.forward_target(batch, **rows), rows)

    def forward_mtp(self, batch: ForwardBatch, streams: torch.Tensor, **rows: Any) -> Any:
        return self._answer("mtp", (batch, streams), lambda runner: runner.forward_mtp(batch, streams, **rows), rows)

    def trace_target(self, batch: ForwardBatch) -> Any:
        return self._answer("trace", (batch,), lambda runner: runner.trace_target(batch), {})

    def _answer(self, name: str, given: Sequence[Any], call: Callable[[ModelRunner], Any], rows: dict) -> Any:
        values = [part for value in given for part in (_parts(value) if isinstance(value, ForwardBatch) else (value,))]
        self._key = _digest(self._key, name, rows, *values)
        self._calls.append(call)
        if self._key not in _outputs:
            if self._runner is None:
                self._runner = self._make()
                for earlier in self._calls[:-1]:
                    earlier(self._runner)
            _outputs[self._key] = call(self._runner)
        elif self._runner is not None:
            call(self._runner)
        return _outputs[self._key]


def _parts(batch: ForwardBatch) -> list[object]:
    return [value.value if hasattr(value, "value") else value for value in vars(batch).values()]


class _RememberedEngine:
    """Takes requests as an engine does, and computes them only if no engine before was given the same ones."""

    def __init__(self, options: EngineOptions, **parts: Any) -> None:
        settings = {name: value for name, value in vars(options).items() if name != "model"}
        self.options, self._parts = options, parts
        self._key = _digest(_checkpoint(Path(options.model)), settings)
        self._requests: list[tuple[tuple[int, ...], dict[str, Any]]] = []

    def add(self, prompt: Sequence[int], **wishes: Any) -> int:
        self._requests.append((tuple(prompt), wishes))
        self._key = _digest(self._key, tuple(prompt), wishes)
        return len(self._requests) - 1

    @property
    def has_work(self) -> bool:
        return self._key not in _served

    @property
    def num_free_slots(self) -> int:
        return self.options.max_requests

    def step(self) -> None:
        engine = Engine(self.options, **self._parts)
        ids = [engine.add(prompt, **wishes) for prompt, wishes in self._requests]
        while engine.has_work:
            engine.step()
        assert engine.num_free_slots == self.options.max_requests, "a finished request kept its cache slot"
        _served[self._key] = [engine.result(request) for request in ids]

    def result(self, request_id: int) -> RequestResult:
        return _served[self._key][request_id]
