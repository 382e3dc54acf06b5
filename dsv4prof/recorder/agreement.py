"""All ranks of one launch record into one session's folder.

Who starts them can name it in DSV4PROF_SESSION; otherwise rank 0 makes it and the others on the same host learn of it
through a small file named after their common parent process, those on other nodes through torchrun's store.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from dsv4prof.errors import InputError, OutputError
from dsv4prof.model.session import MANIFEST_NAME, Outcome, RankCoordinates, Session
from dsv4prof.recorder.atomic import write_atomic

SESSION_VARIABLE = "DSV4PROF_SESSION"
_AGREE_PATIENCE_S = 60.0
# How far apart the ranks of one launch may hear of one request.
_FRESH_S = 10.0
_NOTE_PREFIX = ".launch-"
_launches: dict[Path, int] = {}


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
    if _several_nodes():
        return _agree_by_store(me, root, make)
    note = _agreement(root)
    if me.rank != 0:
        return _await_folder(note, me)
    folder = make().absolute()
    _forget_past_launches(root)
    write_atomic(note, str(folder).encode())
    return folder


def meet_on_session(me: RankCoordinates, root: Path, make: Callable[[], Path]) -> Path:
    """One folder for ranks that are asked at about the same time, again and again, and perhaps not all of them.

    Rank 0's note counts for some seconds, so that a request which reached one rank alone spoils no later one.
    Raises OutputError when rank 0 is not heard of in that time.
    """
    if (me.world_size or 1) == 1:
        return make().absolute()
    note = root / f"{_NOTE_PREFIX}{_launch_name()}-now"
    if me.rank == 0:
        folder = make().absolute()
        _forget_past_launches(root)
        write_atomic(note, str(folder).encode())
        return folder
    deadline = time.monotonic() + _FRESH_S
    while time.monotonic() < deadline:
        with suppress(FileNotFoundError):
            if abs(time.time() - note.stat().st_mtime) < _FRESH_S:
                return Path(note.read_text())
        time.sleep(0.05)
    raise OutputError(
        f"rank {me.rank} was asked to record, and heard nothing of rank 0's session in {_FRESH_S:.0f} s",
        hint="ask all ranks at once, or name one folder for all of them (session=)",
    )


def _several_nodes() -> bool:
    """Whether torchrun has agents on several nodes, which share the store of the first."""
    agents = os.environ.get("GROUP_WORLD_SIZE", "1")
    return agents.isdecimal() and int(agents) > 1 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def _agree_by_store(me: RankCoordinates, root: Path, make: Callable[[], Path]) -> Path:
    """Rank 0 tells the others by the store that all agents of the launch have in common."""
    from datetime import timedelta

    from torch.distributed import DistError, PrefixStore, TCPStore

    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    _launches[root] = _launches.get(root, 0) + 1
    key = f"{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}-{_launches[root]}"
    try:
        patience = timedelta(seconds=_AGREE_PATIENCE_S)
        store = PrefixStore("dsv4prof/session", TCPStore(host, port, is_master=False, timeout=patience))
        if me.rank == 0:
            folder = make().absolute()
            store.set(key, str(folder))
            return folder
        folder = Path(store.get(key).decode())
    except (DistError, RuntimeError) as error:
        raise OutputError(
            f"rank {me.rank} heard nothing of rank 0's session at {host}:{port}: {str(error).splitlines()[0]}",
            hint=f"make a session on shared storage and name it in {SESSION_VARIABLE}",
        ) from error
    if not folder.is_dir():
        raise OutputError(
            f"rank {me.rank} does not see rank 0's session {folder}",
            hint="give a --sessions-dir that all nodes share",
        )
    return folder


def _agreement(root: Path) -> Path:
    """One name for all ranks of one launch. Counted, for several recordings."""
    _launches[root] = _launches.get(root, 0) + 1
    return root / f"{_NOTE_PREFIX}{_launch_name()}-{_launches[root]}"


def _launch_name() -> str:
    """What all ranks of a launch have in common: their parent is torchrun's agent."""
    import psutil

    parent = os.getppid()
    born = round(psutil.Process(parent).create_time() * 1000)
    return f"{parent}-{born}-{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}"


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
