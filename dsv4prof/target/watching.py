"""The engine under a fault watch: its steps, phases and spans go into the rank's fault record as well."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from dsv4prof.model.session import RankCoordinates
from dsv4prof.sync.runtime.faultwatch.watch import FaultWatch
from dsv4prof.target.hooks import PhaseName, ProfilingHooks
from dsv4prof.target.spec import RunSpec


class WatchedHooks:
    """Step hooks that tell the watch, and then whoever else listens."""

    def __init__(self, watch: FaultWatch, hooks: ProfilingHooks) -> None:
        self._watch = watch
        self._hooks = hooks
        self._requests = 0

    def batch(self, batch: Any) -> None:
        """Judge the lengths of a batch that the host knows, padding rows included; nothing is read from a device."""
        lengths = {"extend_lens": batch.extend_lens_host}
        if batch.seq_lens_host is not None:
            lengths["seq_lens"] = batch.seq_lens_host
        rows = len(batch.extend_lens_host)
        running = self._requests if rows >= self._requests else None
        self._watch.check_lengths(lengths, running=running, padded=None if running is None else rows)

    def step(self, index: int, *, kind: str, requests: int, rows: int) -> AbstractContextManager[object]:
        self._requests = requests
        inner = self._hooks.step(index, kind=kind, requests=requests, rows=rows)
        return _both(self._watch.step(index, kind=kind, requests=requests, rows=rows), inner)

    def phase(
        self, phase: PhaseName, *, requests: int, rows: int, captured: bool, reason: str
    ) -> AbstractContextManager[object]:
        inner = self._hooks.phase(phase, requests=requests, rows=rows, captured=captured, reason=reason)
        return _both(self._watch.phase(phase.value), inner)

    def span(self, name: str) -> AbstractContextManager[object]:
        return _both(self._watch.span(name), self._hooks.span(name))

    def accepted(self, *, requests: int, tokens: int) -> None:
        self._hooks.accepted(requests=requests, tokens=tokens)


@contextmanager
def watched(
    spec: RunSpec, me: RankCoordinates, folder: Path, hooks: ProfilingHooks, *, batch_type: Any
) -> Iterator[Any]:
    """The hooks for the engine: watched ones while `spec` asks for a fault watch, else `hooks` themselves.

    `batch_type` is the engine's class of forward batches, whose host-known lengths are judged as they are made.
    """
    if not spec.fault_watch:
        yield hooks
        return
    number = me.rank if me.local_rank is None else me.local_rank
    watch = FaultWatch(
        folder,
        rank=me.rank,
        world_size=spec.world,
        timeout_s=spec.fault_watch_timeout_s,
        device=None if spec.device == "cpu" else number,
        facts={"argv": ["dsv4prof", *spec.command[1:]] if spec.command else [], "model": spec.model},
    )
    with watch:
        told = WatchedHooks(watch, hooks)
        with _batches_seen(batch_type, told.batch):
            yield told


@contextmanager
def _batches_seen(batch_type: Any, see: Callable[[Any], None]) -> Iterator[None]:
    """Every batch that the engine makes is shown: its hooks announce steps, and not what is in them."""
    original = batch_type.__init__

    def made(self: Any, *args: Any, **keywords: Any) -> None:
        original(self, *args, **keywords)
        see(self)

    batch_type.__init__ = made
    try:
        yield
    finally:
        batch_type.__init__ = original


@contextmanager
def _both(outer: AbstractContextManager[object], inner: AbstractContextManager[object]) -> Iterator[None]:
    with outer, inner:
        yield
