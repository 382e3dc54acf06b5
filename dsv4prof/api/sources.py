"""What a user may name as input: a session (id, prefix, folder, `latest`), a folder of rank files, or trace files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from dsv4prof.errors import InputError
from dsv4prof.model.session import MANIFEST_NAME, Outcome, Session
from dsv4prof.recorder.sessions import find_session, open_session

MERGED_NAME = "merged.json.gz"
_TRACE_SUFFIXES = (".json", ".json.gz")


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """The rank files to read, and the session they belong to when there is one.

    `lost` says for each rank of the session without a whole trace why that is.
    """

    files: list[Path]
    folder: Path | None = None
    session: Session | None = None
    lost: dict[int, str] = {}

    @property
    def label(self) -> str:
        return str(self.folder or self.files[0])


def resolve(inputs: Sequence[str], sessions_dir: Path) -> Source:
    """What `inputs` name. Raises InputError when it is nothing that can be read."""
    if len(inputs) == 1:
        path = Path(inputs[0])
        if path.is_dir():
            return _session(path) if (path / MANIFEST_NAME).is_file() else _folder(path)
        if not path.exists():
            return _session(_find(inputs[0], sessions_dir))
    missing = [name for name in inputs if not Path(name).is_file()]
    if missing:
        raise InputError(f"{missing[0]} is no file", hint="give rank files, one folder or one session")
    return Source(files=[Path(name) for name in inputs])


def _find(wanted: str, sessions_dir: Path) -> Path:
    if "/" in wanted or wanted.endswith(_TRACE_SUFFIXES):
        raise InputError(f"{wanted} does not exist", hint="dsv4prof sessions list shows what was recorded")
    return find_session(sessions_dir, wanted)


def _session(folder: Path) -> Source:
    session = open_session(folder)
    files, lost = [], {}
    for record in session.ranks:
        rank = record.coordinates.rank
        path = folder / record.trace if record.trace else None
        if path is not None and path.is_file():
            files.append(path)
        if path is None or not path.is_file() or record.outcome is not Outcome.COMPLETE:
            lost[rank] = record.reason or f"{record.outcome.value}: no trace file"
    if not files:
        reason = session.reason or next(iter(lost.values()), "nothing was recorded")
        message = f"session {session.id} has no trace to read: {reason}"
        raise InputError(message, hint="dsv4prof run --profile records one")
    return Source(files=files, folder=folder, session=session, lost=lost)


def _folder(folder: Path) -> Source:
    files = sorted(
        path
        for path in folder.iterdir()
        if path.is_file() and path.name.endswith(_TRACE_SUFFIXES) and not path.name.startswith((".", "merged"))
    )
    if not files:
        raise InputError(f"{folder} holds no trace (*.json, *.json.gz)", hint="name the rank files themselves")
    return Source(files=files, folder=folder)
