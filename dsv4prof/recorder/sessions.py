"""A session's folder as one thing: made, put together from its ranks, found again. No torch, so that any tool may read
it.
"""

from __future__ import annotations

import fcntl
import os
import re
import secrets
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from dsv4prof.errors import InputError, UsageError
from dsv4prof.model.session import MANIFEST_NAME, MANIFEST_SCHEMA, Outcome, RankCoordinates, RankRecord, Session
from dsv4prof.recorder.atomic import write_atomic
from dsv4prof.recorder.sink import check_writable, installed_versions, record_path

DEFAULT_ROOT = Path("traces/local")
_RANK_FILE = re.compile(r"^rank(\d+)\.json$")
_UNSAFE = re.compile(r"[^A-Za-z0-9.]+")


def create_session(
    root: Path,
    *,
    name: str,
    world_size: int,
    command: Sequence[str] = (),
    plan: dict[str, Any] | None = None,
    settings: dict[str, Any] | None = None,
) -> Path:
    """Make `<root>/<UTC time>-<name>-<id>/` with its first manifest. Raises OutputError before anything is
    half-made.
    """
    check_writable(root)
    stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    safe = _UNSAFE.sub("-", name).strip("-.") or "session"
    taken = {path.name.rsplit("-", 1)[-1] for path in root.iterdir()}
    identity = next(word for word in iter(lambda: secrets.token_hex(2), None) if word not in taken)
    folder = root / f"{stamp}-{safe}-{identity}"
    folder.mkdir()
    write_manifest(
        folder,
        Session(
            id=identity,
            name=safe,
            created=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            command=list(command),
            plan=plan or {},
            settings=settings or {},
            versions=installed_versions(),
            world_size=world_size,
        ),
    )
    return folder


def write_manifest(folder: Path, session: Session) -> None:
    write_atomic(folder / MANIFEST_NAME, msgspec.json.format(msgspec.json.encode(session)))


def assemble(folder: Path, **changes: Any) -> Session:
    """Put the manifest together from the ranks' records; whoever finishes last leaves the whole one behind."""
    with _locked(folder):
        session = msgspec.structs.replace(open_session(folder), **changes)
        write_manifest(folder, session)
    return session


def open_session(path: Path | str) -> Session:
    """Read a session's folder. The ranks' own records count over the manifest's copy of them.

    Raises InputError when it is no session, or one that this version cannot read.
    """
    folder = Path(path)
    manifest = folder / MANIFEST_NAME
    try:
        session = msgspec.json.decode(manifest.read_bytes(), type=Session)
    except FileNotFoundError as error:
        raise InputError(f"{folder} is no session: it has no {MANIFEST_NAME}", hint="dsv4prof sessions list") from error
    except (OSError, msgspec.DecodeError) as error:
        raise InputError(f"cannot read {manifest}: {error}", hint="was it written by another program?") from error
    if session.schema != MANIFEST_SCHEMA:
        raise InputError(
            f"{manifest} has the schema {session.schema!r}, this version reads {MANIFEST_SCHEMA!r}",
            hint="use the dsv4prof version that wrote it",
        )
    ranks = {record.coordinates.rank: record for record in session.ranks}
    ranks.update(_read_records(folder))
    for rank in range(session.world_size):
        ranks.setdefault(rank, _absent(rank, session))
    return _judged(session, [_settled(ranks[rank], folder) for rank in sorted(ranks)])


def list_sessions(root: Path = DEFAULT_ROOT) -> list[tuple[Path, Session]]:
    """Every readable session under `root`, newest first; an absent root has none."""
    if not root.is_dir():
        return []
    folders = [path for path in root.iterdir() if (path / MANIFEST_NAME).is_file()]
    found = []
    for folder in folders:
        try:
            found.append((folder, open_session(folder)))
        except InputError:
            # A folder of a foreign version must not hide the others; opening it by name says what is wrong.
            continue
    return sorted(found, key=lambda item: (item[1].created, item[0].name), reverse=True)


def find_session(root: Path, wanted: str) -> Path:
    """The folder of a session named by path, by id, or by a prefix of its id or folder name ("latest" = newest).

    Raises InputError when there is none, UsageError when several match.
    """
    if (Path(wanted) / MANIFEST_NAME).is_file():
        return Path(wanted)
    sessions = list_sessions(root)
    if wanted == "latest" and sessions:
        return sessions[0][0]
    exact = [path for path, session in sessions if session.id == wanted]
    matches = exact or [
        path for path, session in sessions if session.id.startswith(wanted) or path.name.startswith(wanted)
    ]
    if not wanted or not matches:
        raise InputError(f"no session {wanted!r} under {root}", hint="dsv4prof sessions list shows what is there")
    if len(matches) > 1:
        names = ", ".join(path.name for path in matches[:4])
        raise UsageError(f"{wanted!r} fits {len(matches)} sessions: {names}", hint="give more of the id")
    return matches[0]


def _read_records(folder: Path) -> dict[int, RankRecord]:
    records = {}
    for path in folder.iterdir():
        if match := _RANK_FILE.match(path.name):
            try:
                records[int(match[1])] = msgspec.json.decode(path.read_bytes(), type=RankRecord)
            except (OSError, msgspec.DecodeError) as error:
                hint = "the trace beside it may still be whole"
                raise InputError(f"cannot read {path}: {error}", hint=hint) from error
    return records


def _absent(rank: int, session: Session) -> RankRecord:
    coordinates = RankCoordinates(rank=rank, world_size=session.world_size)
    return RankRecord(coordinates=coordinates, outcome=Outcome.MISSING, reason="this rank never reported")


def _settled(record: RankRecord, folder: Path) -> RankRecord:
    """A record that says `recording` of a process that is gone was never finished."""
    here = record.coordinates.host == socket.gethostname()
    if record.outcome is not Outcome.RECORDING or not here or record.pid is None:
        return record
    if _running(record.pid, record_path(folder, record.coordinates.rank)):
        return record
    return msgspec.structs.replace(
        record, outcome=Outcome.INCOMPLETE, reason=record.reason or "its process ended without saving a trace"
    )


def _running(pid: int, written: Path) -> bool:
    """Whether the process that wrote `written` lives: a zombie does not, and a younger process only has its number."""
    import psutil

    try:
        process = psutil.Process(pid)
        zombie = process.status() == psutil.STATUS_ZOMBIE
        return not zombie and process.create_time() <= written.stat().st_mtime + 1
    except (psutil.NoSuchProcess, FileNotFoundError):
        return False
    except psutil.AccessDenied:
        return True


def _judged(session: Session, ranks: list[RankRecord]) -> Session:
    """The session's outcome is its worst rank's, with every reason."""
    outcomes = {record.outcome for record in ranks}
    if Outcome.RECORDING in outcomes or (session.outcome is Outcome.RECORDING and outcomes == {Outcome.MISSING}):
        outcome = Outcome.RECORDING
    elif outcomes == {Outcome.COMPLETE}:
        outcome = Outcome.COMPLETE
    else:
        outcome = Outcome.INCOMPLETE
    reasons = [
        f"rank {record.coordinates.rank}: {record.reason or record.outcome.value}"
        for record in ranks
        if record.outcome in (Outcome.INCOMPLETE, Outcome.MISSING)
    ]
    reason = "; ".join(reasons) if outcome is Outcome.INCOMPLETE else None
    return msgspec.structs.replace(session, ranks=ranks, outcome=outcome, reason=reason)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """One writer of the manifest at a time, among all processes of this host; the lock dies with its holder."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def record_of(folder: Path, rank: int) -> RankRecord | None:
    """What one rank last said of itself, or None when it said nothing."""
    path = record_path(folder, rank)
    return msgspec.json.decode(path.read_bytes(), type=RankRecord) if path.is_file() else None
