"""What the server needs of an engine, and no more: the seam at which tests put a fake one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from dsv4_engine.request import RequestResult, SamplingParams, TokenLogprobs


class Step(Protocol):
    """new_tokens, logprobs: by request id. finished: ids, those of withdrawn requests included."""

    @property
    def new_tokens(self) -> Mapping[int, Sequence[int]]: ...
    @property
    def logprobs(self) -> Mapping[int, Sequence[TokenLogprobs]]: ...
    @property
    def finished(self) -> Sequence[int]: ...


class Stats(Protocol):
    """running, waiting: requests. accept_length: tokens a verify gained on average, None before the first one."""

    @property
    def running(self) -> int: ...
    @property
    def waiting(self) -> int: ...
    @property
    def free_pages(self) -> int: ...
    @property
    def num_pages(self) -> int: ...
    @property
    def cached_pages(self) -> int: ...
    @property
    def accept_length(self) -> float | None: ...


class ServedEngine(Protocol):
    """Belongs to one thread; `dsv4_engine.engine.Engine` is one."""

    @property
    def has_work(self) -> bool: ...

    def add(
        self,
        prompt: Sequence[int],
        *,
        max_new_tokens: int,
        ignore_eos: bool = False,
        sampling: SamplingParams = ...,
        stop_ids: Iterable[int] = (),
        priority: int = 0,
    ) -> int: ...

    def abort(self, request_id: int) -> bool: ...

    def step(self) -> Step: ...

    def result(self, request_id: int) -> RequestResult: ...

    def forget(self, request_id: int) -> None: ...

    def stats(self) -> Stats: ...

    def flush_cache(self) -> bool: ...


class StepObserver(Protocol):
    """Somebody on the engine's thread between its steps: a profiler that starts and stops there."""

    def after_step(self) -> None: ...

    def poll(self) -> bool:
        """A moment without work; True asks to be called again soon, though nothing happens."""
        ...

    def end(self) -> None:
        """There will be no more steps."""
        ...


class NoObserver:
    """Nobody."""

    def after_step(self) -> None:
        return None

    def poll(self) -> bool:
        return False

    def end(self) -> None:
        return None
