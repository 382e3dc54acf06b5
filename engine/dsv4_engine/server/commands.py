"""What a step begins with: requests added and withdrawn. Every rank carries out the same commands before the same step.

Rank 0 takes them from its clients and sends them on; the other ranks do nothing but obey.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from dsv4_engine.errors import EngineError
from dsv4_engine.request import RequestResult
from dsv4_engine.server.engine_api import NoObserver, ServedEngine, Stats, Step, StepObserver
from dsv4_engine.server.generation import Generation

Added = int | EngineError
"""The id that the engine gave a request, or its refusal; the same on every rank."""


@dataclass(frozen=True)
class Commands:
    """In this order: aborts, adds, flush, messages, stop. Plain values, since they travel between processes.

    messages: for the ranks' observers, such as a request to profile.
    """

    aborts: tuple[int, ...] = ()
    adds: tuple[Generation, ...] = ()
    flush: bool = False
    messages: tuple[bytes, ...] = ()
    stop: bool = False

    def __bool__(self) -> bool:
        return bool(self.aborts or self.adds or self.flush or self.messages or self.stop)


class CommandChannel(Protocol):
    """From rank 0 to the others. heartbeat_s: how often the others have to hear something, None for never."""

    @property
    def heartbeat_s(self) -> float | None: ...

    def send(self, commands: Commands) -> None: ...

    def receive(self) -> Commands: ...


class SoloChannel:
    """A single rank: there is nobody to tell."""

    heartbeat_s: float | None = None

    def send(self, commands: Commands) -> None:
        return None

    def receive(self) -> Commands:
        raise AssertionError("a single rank takes its commands from its clients")


class BroadcastChannel:
    """Over a torch.distributed group of CPU ranks (gloo), a small pickled object for each step.

    A collective that waits longer than its group's timeout fails, so an idle rank 0 says so from time to time.
    """

    def __init__(self, group: object, *, timeout_s: float) -> None:
        self.heartbeat_s: float | None = timeout_s / 4
        self._group = group

    def send(self, commands: Commands) -> None:
        self._broadcast([commands])

    def receive(self) -> Commands:
        box: list[Commands | None] = [None]
        self._broadcast(box)
        assert box[0] is not None
        return box[0]

    def _broadcast(self, box: Sequence[Commands | None]) -> None:
        import torch.distributed as dist

        dist.broadcast_object_list(box, src=0, group=self._group)


@dataclass(frozen=True)
class RankStep:
    """What one step brought: results of what has finished are taken out of the engine, which forgets them."""

    step: Step
    results: dict[int, RequestResult]


class RankEngine:
    """An engine that obeys commands and remembers nothing of what is over; one for each rank, on its own thread."""

    def __init__(self, engine: ServedEngine) -> None:
        self._engine = engine

    @property
    def has_work(self) -> bool:
        return self._engine.has_work

    def stats(self) -> Stats:
        return self._engine.stats()

    def obey(self, commands: Commands) -> tuple[list[Added], bool]:
        """What came of the adds, in their order, and whether the cache was flushed."""
        for request_id in commands.aborts:
            self._abort(request_id)
        added = [self._add(wanted) for wanted in commands.adds]
        flushed = self._engine.flush_cache() if commands.flush else False
        return added, flushed

    def step(self) -> RankStep:
        step = self._engine.step()
        results = {request_id: self._engine.result(request_id) for request_id in step.finished}
        for request_id in step.finished:
            self._engine.forget(request_id)
        return RankStep(step, results)

    def cached_tokens(self, request_id: int) -> int:
        """Prompt tokens that a request which has not finished found in the prefix cache."""
        return self._engine.result(request_id).cached_tokens

    def _abort(self, request_id: int) -> None:
        # A withdrawn request is over at once where no step of it is under way, else with that step.
        self._engine.abort(request_id)
        if self._engine.result(request_id).finish_reason is not None:
            self._engine.forget(request_id)

    def _add(self, wanted: Generation) -> Added:
        try:
            return self._engine.add(
                wanted.prompt,
                max_new_tokens=wanted.max_new_tokens,
                ignore_eos=wanted.ignore_eos,
                sampling=wanted.sampling,
                stop_ids=wanted.stop_ids,
                priority=wanted.priority,
            )
        except EngineError as error:
            return error


def follow(
    engine: ServedEngine,
    channel: CommandChannel,
    *,
    observer: StepObserver | None = None,
    on_message: Callable[[bytes], None] = lambda message: None,
) -> None:
    """The life of every rank but rank 0: obey and step, until told to stop."""
    rank, watching = RankEngine(engine), observer or NoObserver()
    while True:
        commands = channel.receive()
        for message in commands.messages:
            on_message(message)
        rank.obey(commands)
        if commands.stop:
            watching.end()
            return
        if rank.has_work:
            rank.step()
            watching.after_step()
        else:
            watching.poll()
