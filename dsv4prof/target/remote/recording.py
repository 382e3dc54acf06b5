"""From an armed profiler to one that is stopped, whatever happens in between, with the files that came of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from dsv4prof.target.remote.client import Client, NoAnswerError
from dsv4prof.target.remote.collect import Collector, Key
from dsv4prof.target.remote.facts import ServerFacts, requests_in_progress
from dsv4prof.target.remote.interrupts import Interrupts
from dsv4prof.target.remote.load import Load
from dsv4prof.target.remote.spec import AttachSpec
from dsv4prof.target.remote.stopping import SAVING_S, Profiler, Stop, Watch, stop_bounded

Progress = Callable[[str], None]
# After an answer that says "saved", a file that is not there will not come; a shared folder may lag.
_LAG_S = 10.0
_NOTHING_SAVED_S = 1.0
_INTERRUPTED_PATIENCE_S = 15.0
_LEAST_STOP_S = 30.0
_LOAD_END_S = 3.0
_POLL_S = 0.25


class Ended(msgspec.Struct, kw_only=True):
    """What happened between start and stop. `by_server`: the windows that the server had closed by itself.

    `stop` is what came of ours, None when none was needed, after `stop_s` seconds. `cut`: interrupted before its end;
    `interrupted`: at any time. `settled`: no rank writes any more. Of the load only what was sent by us counts.
    """

    by_server: frozenset[Key] = frozenset()
    stop: Stop | None = None
    stop_s: float = 0.0
    cut: bool = False
    interrupted: bool = False
    settled: bool = False
    served: int = 0
    waited_s: float = 0.0
    notes: list[str] = []

    @property
    def saving(self) -> bool:
        return self.stop is Stop.UNANSWERED

    @property
    def gone(self) -> bool:
        return self.stop is Stop.GONE


def record(
    client: Client,
    facts: ServerFacts,
    spec: AttachSpec,
    profiler: Profiler,
    collector: Collector,
    progress: Progress,
    *,
    start: Callable[[], object],
    interrupts: Interrupts,
) -> Ended:
    """Start, wait for what was asked, end the profiler and wait for files; signals only cut the waiting.

    Raises what `start` raises. Afterwards the `interrupts` are held: a caller keeps in peace what there is.
    """
    ended, load, watch = Ended(notes=[]), Load(client, facts), Watch(client)
    began = time.monotonic()
    try:
        start()
        with _stopped_on_failure(profiler, load):
            sent = _start_load(load, client, facts, spec, ended.notes, progress)
            _wait_for_steps(client, facts, spec, collector, watch, sent=sent)
        interrupts.hold()
    except KeyboardInterrupt:
        interrupts.hold()
        ended.cut = True
        progress("interrupted")
    collector.look()
    complete = collector.complete
    ended.by_server = frozenset(key for key, found in collector.found.items() if found.whole)
    ended.waited_s = time.monotonic() - began
    # Requests of ours end with the recording, and not with the minutes of its saving.
    load.halt()
    if watch.gone:
        ended.stop = Stop.GONE
    elif profiler.lingers or not complete:
        _stop(client, spec, profiler, collector, interrupts, progress, ended)
    # A server that saves answers none of them.
    load.join(wait_s=0.0 if ended.gone or ended.saving or interrupts.count else _LOAD_END_S)
    _wait_for_files(spec, profiler, collector, interrupts, ended)
    if collector.complete and ended.saving and not profiler.lingers:
        # All that was awaited is there: the answer does not matter any more.
        ended.stop = None
    answered = profiler.everyone and ended.stop in (Stop.SAVED, Stop.NOTHING)
    ended.settled = (collector.complete and not profiler.lingers) or ended.gone or answered
    ended.interrupted = ended.cut or interrupts.count > 0
    ended.served = load.served
    ended.notes.extend(_notes(spec, load, ended, early=not (complete or ended.cut)))
    return ended


def _notes(spec: AttachSpec, load: Load, ended: Ended, *, early: bool) -> list[str]:
    notes = [f"the load was refused: {load.refusal}"] if load.refusal and not load.served else []
    if ended.gone:
        notes.append(f"the server is gone: it stopped answering after {ended.waited_s:.0f} s")
    elif ended.stop is Stop.SAVED and spec.plan.active is not None and early:
        notes.append(f"stopped after {ended.waited_s:.0f} s: {spec.plan.active} steps had not passed everywhere")
    return notes


@contextmanager
def _stopped_on_failure(profiler: Profiler, load: Load) -> Iterator[None]:
    """For what nobody foresaw: the server's profiler is stopped on the way out."""
    try:
        yield
    except Exception:
        load.halt()
        profiler.end(timeout=_LEAST_STOP_S)
        raise


def _stop(
    client: Client,
    spec: AttachSpec,
    profiler: Profiler,
    collector: Collector,
    interrupts: Interrupts,
    progress: Progress,
    ended: Ended,
) -> None:
    limit = max(spec.patience, _LEAST_STOP_S if ended.cut else SAVING_S)
    progress(f"stopping the server's profiler; it saves first: waiting {limit:.0f} s at most")

    def done() -> bool:
        collector.look()
        return collector.complete and not profiler.lingers

    began = time.monotonic()
    ended.stop = stop_bounded(profiler, client, limit, interrupts, progress, done)
    ended.stop_s = time.monotonic() - began


def _wait_for_files(
    spec: AttachSpec, profiler: Profiler, collector: Collector, interrupts: Interrupts, ended: Ended
) -> None:
    patience = min(spec.patience, _INTERRUPTED_PATIENCE_S) if interrupts.count or ended.cut else spec.patience
    if ended.gone or ended.saving:
        # Nothing writes any more, or the wait is over already: a file counts on its second look.
        patience = quiet = min(patience, _NOTHING_SAVED_S)
    elif not profiler.everyone and (collector.found or ended.stop is Stop.SAVED):
        # The ranks that were not heard may still be saving.
        quiet = patience
    else:
        quiet = min(_LAG_S, patience) if ended.stop is Stop.SAVED else _NOTHING_SAVED_S
    before = interrupts.count
    collector.wait(patience, quiet=quiet, over=lambda: interrupts.count > before)


def _start_load(
    load: Load, client: Client, facts: ServerFacts, spec: AttachSpec, notes: list[str], progress: Progress
) -> bool:
    """Requests of our own for a server without any; False when it has some, or is to be left alone."""
    if spec.load == "none":
        progress("waiting for the server's own requests")
        return False
    busy = _busy(client, facts)
    if busy is None:
        notes.append("no load was sent: the server does not say whether it is idle")
        return False
    if busy > 0 or not facts.generates:
        progress("recording the server's own requests")
        return False
    progress("the server is idle: sending it a few short requests")
    load.start()
    return True


def _wait_for_steps(
    client: Client, facts: ServerFacts, spec: AttachSpec, collector: Collector, watch: Watch, *, sent: bool
) -> None:
    if spec.plan.active is not None:
        collector.wait(spec.patience, over=watch.look)
        return
    deadline = time.monotonic() + spec.patience
    while not sent and time.monotonic() < deadline and not watch.look():
        # Seconds begin with the first request, or an idle server would be recorded for nothing.
        busy = _busy(client, facts)
        if busy is None or busy > 0 or collector.look():
            break
        time.sleep(_POLL_S)
    until = time.monotonic() + spec.seconds
    while (left := until - time.monotonic()) > 0 and not watch.look():
        time.sleep(min(_POLL_S, left))


def _busy(client: Client, facts: ServerFacts) -> int | None:
    try:
        return requests_in_progress(client, facts.kind)
    except NoAnswerError:
        # Whether it is gone is the watch's business.
        return None
