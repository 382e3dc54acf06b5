"""Recording any program: `with record() as recorder: ... recorder.step()`, alone or as one of torchrun's ranks.

All ranks of one launch record into one session's folder. Who starts them can name it in DSV4PROF_SESSION; otherwise
rank 0 makes it and the others on the same host learn of it through a small file named after their common parent
process.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

import msgspec

from dsv4prof.errors import Dsv4profError, InputError, LifetimeError, OutputError, UsageError
from dsv4prof.model.session import MANIFEST_NAME, Outcome, RankCoordinates, Session
from dsv4prof.recorder.atomic import write_atomic
from dsv4prof.recorder.backends.kineto import KinetoBackend
from dsv4prof.recorder.manager import Recorder
from dsv4prof.recorder.plan import RecordPlan
from dsv4prof.recorder.sessions import DEFAULT_ROOT, assemble, create_session
from dsv4prof.recorder.sink import RankSink
from dsv4prof.recorder.wording import writable

SESSION_VARIABLE = "DSV4PROF_SESSION"
_AGREE_PATIENCE_S = 60.0
_LONGEST_NAME = 200
_NOTE_PREFIX = ".launch-"
_launches: dict[Path, int] = {}


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
    if len(name) > _LONGEST_NAME:
        raise UsageError(
            f"a session's name of {len(name)} characters is too long for a folder's",
            hint=f"give {_LONGEST_NAME} characters or fewer",
        )
    chosen = plan or RecordPlan()
    me = coordinates or coordinates_from(os.environ)
    # The program may change its directory before anything is saved.
    home = Path(root).absolute()
    folder = agree_on_session(
        me,
        home,
        lambda: create_session(
            home,
            name=name,
            world_size=me.world_size or 1,
            command=[writable(word) for word in sys.argv],
            plan=msgspec.to_builtins(chosen),
        ),
        given=session,
    )
    recorder = _armed(chosen, me, folder)
    process = os.getpid()
    try:
        with _terminate_by_exception(), recorder:
            yield recorder
    finally:
        # Of a removed folder the recorder has told already, or the block's own exception goes first.
        if os.getpid() == process and (folder / MANIFEST_NAME).is_file():
            forget_launch(folder, assemble(folder))
    require_freed(recorder)


def _armed(plan: RecordPlan, me: RankCoordinates, folder: Path) -> Recorder:
    """An armed recorder; when it cannot be armed, a folder that holds nothing but its manifest goes again."""
    try:
        backend = KinetoBackend(plan, metadata=trace_metadata(me, folder))
        recorder = Recorder(plan, RankSink(folder, me), backend, mark_steps=True)
        recorder.arm()
    except Dsv4profError:
        if [path.name for path in folder.iterdir()] == [MANIFEST_NAME] and me.world_size == 1:
            shutil.rmtree(folder)
        raise
    return recorder


def require_freed(recorder: Recorder) -> None:
    """Raises LifetimeError with the holders' names when the profiler survived its release; the trace is saved."""
    if recorder.proof is not None and not recorder.proof.freed:
        raise LifetimeError(
            f"the profiler is still alive after its release: {'; '.join(recorder.proof.holders)}",
            hint="drop that reference; until then the profiler is destroyed at a random later moment",
        )


def coordinates_from(environment: Mapping[str, str]) -> RankCoordinates:
    """Who this process is, by torchrun's variables; rank 0 of 1 without them. Raises UsageError for what is no
    number.
    """
    try:
        rank, world = int(environment.get("RANK", "0")), int(environment.get("WORLD_SIZE", "1"))
    except ValueError as error:
        raise UsageError("RANK and WORLD_SIZE have to be whole numbers", hint="start with torchrun") from error
    if not 0 <= rank < world:
        raise UsageError(f"RANK={rank} does not fit WORLD_SIZE={world}", hint="start with torchrun")
    return RankCoordinates(rank=rank, world_size=world, host=socket.gethostname())


def trace_metadata(me: RankCoordinates, folder: Path) -> dict[str, object]:
    """What a trace file says of itself, so that it can be told apart when it has been copied elsewhere."""
    return {"session": folder.name, "rank": me.rank, "world_size": me.world_size, "host": me.host}


def agree_on_session(
    me: RankCoordinates, root: Path, make: Callable[[], Path], *, given: Path | str | None = None
) -> Path:
    """One folder for all ranks of a launch: `given`, or DSV4PROF_SESSION, or the one that rank 0 now makes.

    Raises InputError when the named folder is no session, OutputError when rank 0 is not heard of.
    """
    named = given or os.environ.get(SESSION_VARIABLE)
    if named:
        folder = Path(named).absolute()
        if not (folder / MANIFEST_NAME).is_file():
            raise InputError(
                f"{folder} is no session: it has no {MANIFEST_NAME}", hint=f"unset {SESSION_VARIABLE} to make a new one"
            )
        return folder
    if (me.world_size or 1) == 1:
        return make().absolute()
    note = _agreement(root)
    if me.rank != 0:
        return _await_folder(note, me)
    folder = make().absolute()
    _forget_past_launches(root)
    write_atomic(note, str(folder).encode())
    return folder


def _agreement(root: Path) -> Path:
    """One name for all ranks of one launch: their parent is torchrun's agent. Counted, for several recordings."""
    import psutil

    parent = os.getppid()
    born = round(psutil.Process(parent).create_time() * 1000)
    restart = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    _launches[root] = _launches.get(root, 0) + 1
    return root / f"{_NOTE_PREFIX}{parent}-{born}-{restart}-{_launches[root]}"


def forget_launch(folder: Path, session: Session) -> None:
    """Every rank that has a record has read the note that led it here; whoever sees them all takes it away."""
    if any(record.outcome is Outcome.MISSING for record in session.ranks):
        return
    for note in folder.parent.glob(f"{_NOTE_PREFIX}*"):
        with suppress(FileNotFoundError):
            if note.read_text() == str(folder):
                note.unlink()


def _forget_past_launches(root: Path) -> None:
    """The note of a launch that died stays, but one whose agent is gone leads nobody anywhere."""
    import psutil

    for note in root.glob(f"{_NOTE_PREFIX}*"):
        parent = note.name.removeprefix(_NOTE_PREFIX).split("-")[0]
        if parent.isdecimal() and not psutil.pid_exists(int(parent)):
            note.unlink(missing_ok=True)


def _await_folder(note: Path, me: RankCoordinates) -> Path:
    deadline = time.monotonic() + _AGREE_PATIENCE_S
    while time.monotonic() < deadline:
        try:
            return Path(note.read_text())
        except FileNotFoundError:
            time.sleep(0.05)
    raise OutputError(
        f"rank {me.rank} heard nothing of rank 0's session in {_AGREE_PATIENCE_S:.0f} s",
        hint=f"on several hosts make a session on shared storage and name it in {SESSION_VARIABLE}",
    )


@contextmanager
def _terminate_by_exception() -> Iterator[None]:
    """SIGTERM's default end loses the trace. Somebody else's handler is left alone."""
    mine = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    if not mine:
        yield
        return

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
