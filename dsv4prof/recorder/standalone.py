"""Recording any program: `with record() as recorder: ... recorder.step()`, alone or as one of torchrun's ranks."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from dsv4prof.errors import Dsv4profError, LifetimeError
from dsv4prof.model.session import MANIFEST_NAME, RankCoordinates
from dsv4prof.recorder.agreement import SESSION_VARIABLE, agree_on_session, forget_launch
from dsv4prof.recorder.backends.compose import make_backend
from dsv4prof.recorder.barrier import await_ranks
from dsv4prof.recorder.coordinates import coordinates_from, trace_metadata
from dsv4prof.recorder.manager import Recorder
from dsv4prof.recorder.plan import RecordPlan
from dsv4prof.recorder.sessions import DEFAULT_ROOT, assemble
from dsv4prof.recorder.sink import RankSink
from dsv4prof.recorder.starting import new_session, require_name
from dsv4prof.recorder.termination import by_exception
from dsv4prof.recorder.wording import warn

_OTHERS_PATIENCE_S = 60.0
# After a failure of its own: the others may be waiting for this rank in a collective.
_FAILED_PATIENCE_S = 1.0


@contextmanager
def record(
    plan: RecordPlan | None = None,
    *,
    name: str = "script",
    root: Path | str = DEFAULT_ROOT,
    session: Path | str | None = None,
    coordinates: RankCoordinates | None = None,
) -> Iterator[Recorder]:
    """Record the block, or the plan's window of it when `recorder.step()` is called at the end of each step.

    Each recorded step is a `ProfilerStep#N` in the trace; a block without any `step()` is one step.
    The rank is read from RANK and WORLD_SIZE unless `coordinates` says more. `session` (or DSV4PROF_SESSION) names an
    existing session's folder; otherwise a new one is made under `root`. `recorder.record` says what was saved.
    Raises UsageError, OutputError or LifetimeError before the block where possible, else after it; an exception of the
    block goes first. SIGTERM in the block ends it with SystemExit, so that the trace is saved. A child forked in the
    block leaves it without a trace, and everything to its parent.
    Recording is per thread: a trace without any operator, because nothing ran or because other threads did the work, is
    saved and called incomplete.
    """
    chosen = plan or RecordPlan()
    me = coordinates or coordinates_from(os.environ)
    require_name(name)
    # The program may change its directory before anything is saved.
    home = Path(root).absolute()
    folder = agree_on_session(me, home, lambda: new_session(chosen, me, home, name), given=session)
    made = not session and not os.environ.get(SESSION_VARIABLE) and (me.world_size or 1) == 1
    recorder = _armed(chosen, me, folder, discard=made)
    process = os.getpid()
    patience_s = _FAILED_PATIENCE_S
    try:
        with by_exception(), recorder:
            yield recorder
        patience_s = _OTHERS_PATIENCE_S
    finally:
        # Of a removed folder the recorder has told already, or the block's own exception goes first.
        if os.getpid() == process and (folder / MANIFEST_NAME).is_file():
            _meet(me, folder, patience_s)
            forget_launch(folder, assemble(folder))
    require_freed(recorder)


def _armed(plan: RecordPlan, me: RankCoordinates, folder: Path, *, discard: bool) -> Recorder:
    """An armed recorder, or one that skips this rank. When it cannot be armed, the folder goes again if asked for."""
    try:
        make = partial(make_backend, plan, metadata=trace_metadata(me, folder))
        recorder = Recorder(plan, RankSink(folder, me), make, mark_steps=True)
        if plan.records(me):
            recorder.arm()
        else:
            recorder.skip()
    except Dsv4profError:
        if discard:
            shutil.rmtree(folder)
        raise
    return recorder


def _meet(me: RankCoordinates, folder: Path, patience_s: float) -> None:
    """Rank 0 leaves the whole manifest behind: it waits for the others' words, for so long and no longer, and says who
    failed. Nobody waits in a collective, where one rank's failure would hang all others.
    """
    world = me.world_size or 1
    if me.rank != 0 or world == 1:
        return
    met = await_ranks(folder, world, patience_s=patience_s)
    if not met.complete:
        warn(met.sentence)


def require_freed(recorder: Recorder) -> None:
    """Raises LifetimeError with the holders' names when the profiler survived its release; the trace is saved."""
    if recorder.proof is not None and not recorder.proof.freed and not recorder.proof.kept:
        raise LifetimeError(
            f"the profiler is still alive after its release: {'; '.join(recorder.proof.holders)}",
            hint="drop that reference; until then the profiler is destroyed at a random later moment",
        )
