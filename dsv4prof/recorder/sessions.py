"""A session's folder as one thing: made, put together from its ranks, found again. No torch, so that any tool may read
it.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
import socket
import time
from calendar import timegm
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from dsv4prof.errors import InputError, OutputError, UsageError
from dsv4prof.model.session import MANIFEST_NAME, MANIFEST_SCHEMA, Outcome, RankCoordinates, RankRecord, Session
from dsv4prof.recorder.atomic import locked, write_atomic
from dsv4prof.recorder.sink import check_writable, installed_versions, record_path

DEFAULT_ROOT = Path("traces/local")
MAX_WORLD_SIZE = 1 << 20
_FOLDER = re.compile(r"^\d{8}T\d{6}Z-.+-[0-9a-f]{4}$")
_CREATED = "%Y-%m-%dT%H:%M:%SZ"
_RANK_FILE = re.compile(r"^rank(\d+)(-[\w.-]*pid\d+)?\.json$")
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
    write_manifest(folder, _first_manifest(identity, safe, world_size, command, plan, settings))
    return folder


def join_session(
    folder: Path, *, world_size: int, command: Sequence[str] = (), plan: dict[str, Any] | None = None
) -> Path:
    """A session in a folder that all its ranks name: whoever comes first makes it. Raises OutputError."""
    check_writable(folder)
    with locked(folder):
        if not (folder / MANIFEST_NAME).is_file():
            write_manifest(
                folder, _first_manifest(secrets.token_hex(2), folder.name, world_size, command, plan, None)
            )
    return folder


def _first_manifest(
    identity: str,
    name: str,
    world_size: int,
    command: Sequence[str],
    plan: dict[str, Any] | None,
    settings: dict[str, Any] | None,
) -> Session:
    return Session(
        id=identity,
        name=name,
        created=time.strftime(_CREATED, time.gmtime()),
        command=list(command),
        plan=plan or {},
        settings=settings or {},
        versions=installed_versions(),
        world_size=world_size,
        pid=os.getpid(),
        host=socket.gethostname(),
    )


def write_manifest(folder: Path, session: Session) -> None:
    write_atomic(folder / MANIFEST_NAME, msgspec.json.format(msgspec.json.encode(session)))


def assemble(folder: Path, **changes: Any) -> Session:
    """Put the manifest together from the ranks' records; whoever finishes last leaves the whole one behind."""
    with locked(folder):
        session = msgspec.structs.replace(open_session(folder), **changes)
        write_manifest(folder, session)
    return session


class _Versioned(msgspec.Struct):
    """What every version's manifest has."""

    schema: str = MANIFEST_SCHEMA


def open_session(path: Path | str) -> Session:
    """Read a session's folder. The ranks' own records count over the manifest's copy of them.

    Raises InputError when it is no session, or one that this version cannot read.
    """
    folder = Path(path)
    manifest = folder / MANIFEST_NAME
    try:
        data = manifest.read_bytes()
        # Before its fields: another version's may be missing or different.
        schema = msgspec.json.decode(data, type=_Versioned).schema
        session = msgspec.json.decode(data, type=Session) if schema == MANIFEST_SCHEMA else None
    except FileNotFoundError as error:
        raise InputError(f"{folder} is no session: it has no {MANIFEST_NAME}", hint="dsv4prof sessions list") from error
    except (OSError, msgspec.DecodeError) as error:
        raise InputError(f"cannot read {manifest}: {error}", hint="was it written by another program?") from error
    if session is None:
        raise InputError(
            f"{manifest} has the schema {schema!r}, this version reads {MANIFEST_SCHEMA!r}",
            hint="use the dsv4prof version that wrote it",
        )
    if not 1 <= session.world_size <= MAX_WORLD_SIZE:
        raise InputError(
            f"{manifest} speaks of {session.world_size} ranks", hint="was it written by another program?"
        )
    ranks = {(record.coordinates.rank, ""): record for record in session.ranks}
    reports = _read_records(folder)
    ranks.update(reports)
    for rank in range(session.world_size):
        ranks.setdefault((rank, ""), _absent(rank, session))
    # A second process that called itself the same rank comes last, so that a rank's number is its place.
    order = sorted(ranks, key=lambda key: (key[1], key[0]))
    return _judged(session, [settled(ranks[key], folder) for key in order], reported=bool(reports))


def list_sessions(root: Path = DEFAULT_ROOT) -> list[tuple[Path, Session]]:
    """Every readable session under `root`, newest first; an absent root has none."""
    return scan_sessions(root)[0]


def scan_sessions(root: Path) -> tuple[list[tuple[Path, Session]], list[tuple[Path, str]]]:
    """The readable sessions under `root`, newest first, and the folders of others, each with the reason."""
    found: list[tuple[Path, Session]] = []
    unreadable: list[tuple[Path, str]] = []
    for folder in sorted(root.iterdir()) if root.is_dir() else []:
        if not folder.is_dir() or not (_FOLDER.match(folder.name) or (folder / MANIFEST_NAME).is_file()):
            continue
        try:
            found.append((folder, open_session(folder)))
        except InputError as error:
            # It may have been pruned by somebody else in the meantime.
            if folder.is_dir():
                unreadable.append((folder, error.message))
    return sorted(found, key=lambda item: (item[1].created, item[0].name), reverse=True), unreadable


def remove_session(folder: Path) -> None:
    """Delete a session's folder; of a link to one, the link. Somebody else may be deleting it as well.

    Raises OutputError when it cannot be deleted.
    """
    try:
        if folder.is_symlink():
            folder.unlink(missing_ok=True)
        while folder.is_dir():
            try:
                shutil.rmtree(folder)
            except FileNotFoundError:
                continue
    except OSError as error:
        raise OutputError(
            f"cannot delete {folder}: {error.strerror or error}", hint="check the permissions of the folder"
        ) from error


def find_session(root: Path, wanted: str) -> Path:
    """The folder of a session named by path, by id, or by a prefix of its id or folder name ("latest" = newest).

    Raises InputError when there is none, UsageError when several match.
    """
    if wanted and (Path(wanted) / MANIFEST_NAME).is_file():
        return Path(wanted)
    sessions, unreadable = scan_sessions(root)
    if wanted == "latest" and sessions:
        return sessions[0][0]
    exact = [path for path, session in sessions if session.id == wanted]
    matches = exact or [
        path for path, session in sessions if session.id.startswith(wanted) or path.name.startswith(wanted)
    ]
    broken = [why for path, why in unreadable if path.name.startswith(wanted) or path.name.endswith(f"-{wanted}")]
    if wanted and not matches and len(broken) == 1:
        raise InputError(broken[0], hint="dsv4prof sessions list shows what can be read")
    if not wanted or not matches:
        raise InputError(f"no session {wanted!r} under {root}", hint="dsv4prof sessions list shows what is there")
    if len(matches) > 1:
        names = ", ".join(path.name for path in matches[:4])
        raise UsageError(f"{wanted!r} fits {len(matches)} sessions: {names}", hint="give more of the id")
    return matches[0]


def _read_records(folder: Path) -> dict[tuple[int, str], RankRecord]:
    """By rank, and by what tells two processes apart that both called themselves that rank."""
    records = {}
    try:
        paths = list(folder.iterdir())
    except OSError as error:
        raise InputError(f"cannot read {folder}: {error.strerror or error}", hint="dsv4prof sessions list") from error
    for path in paths:
        if match := _RANK_FILE.match(path.name):
            try:
                records[int(match[1]), match[2] or ""] = msgspec.json.decode(path.read_bytes(), type=RankRecord)
            except (OSError, msgspec.DecodeError) as error:
                hint = "the trace beside it may still be whole"
                raise InputError(f"cannot read {path}: {error}", hint=hint) from error
    return records


def _absent(rank: int, session: Session) -> RankRecord:
    coordinates = RankCoordinates(rank=rank, world_size=session.world_size)
    return RankRecord(coordinates=coordinates, outcome=Outcome.MISSING, reason="this rank never reported")


def settled(record: RankRecord, folder: Path) -> RankRecord:
    """A record that says `recording` of a process that is gone was never finished."""
    here = record.coordinates.host == socket.gethostname()
    if record.outcome is not Outcome.RECORDING or not here or record.pid is None:
        return record
    try:
        written = record_path(folder, record.coordinates.rank).stat().st_mtime
    except FileNotFoundError:
        written = 0.0
    if _running(record.pid, written):
        return record
    return msgspec.structs.replace(
        record, outcome=Outcome.INCOMPLETE, reason=record.reason or "its process ended without saving a trace"
    )


def _running(pid: int, wrote_at: float) -> bool:
    """Whether the process that wrote something at that time (seconds since 1970) lives: a zombie does not, and a
    younger process only has its number.
    """
    import psutil

    try:
        process = psutil.Process(pid)
        return process.status() != psutil.STATUS_ZOMBIE and process.create_time() <= wrote_at + 1
    except psutil.NoSuchProcess:
        return False
    except psutil.AccessDenied:
        return True


def _awaited(session: Session) -> bool:
    """Whether the process that made a session may still start ranks; on another host nobody can tell."""
    if session.outcome is not Outcome.RECORDING or session.pid is None:
        return False
    try:
        created = timegm(time.strptime(session.created, _CREATED))
    except ValueError:
        return False
    return session.host != socket.gethostname() or _running(session.pid, created)


def _judged(session: Session, ranks: list[RankRecord], *, reported: bool) -> Session:
    """The session's outcome is its worst rank's, with every reason.

    Before any rank `reported`, it is recording while its maker lives: ranks that died early never say a word.
    """
    outcomes = {record.outcome for record in ranks} - {Outcome.SKIPPED}
    if Outcome.RECORDING in outcomes or (not reported and outcomes == {Outcome.MISSING} and _awaited(session)):
        outcome = Outcome.RECORDING
    elif outcomes <= {Outcome.COMPLETE}:
        outcome = Outcome.COMPLETE
    else:
        outcome = Outcome.FAILED if outcomes == {Outcome.FAILED} else Outcome.INCOMPLETE
    reasons = [
        f"rank {record.coordinates.rank}: {record.reason or record.outcome.value}"
        for record in ranks
        if record.outcome in (Outcome.INCOMPLETE, Outcome.FAILED, Outcome.MISSING)
    ]
    reason = "; ".join(reasons) if outcome in (Outcome.INCOMPLETE, Outcome.FAILED) else None
    return msgspec.structs.replace(session, ranks=ranks, outcome=outcome, reason=reason)


def record_of(folder: Path, rank: int) -> RankRecord | None:
    """What one rank last said of itself, or None when it said nothing."""
    path = record_path(folder, rank)
    return msgspec.json.decode(path.read_bytes(), type=RankRecord) if path.is_file() else None
