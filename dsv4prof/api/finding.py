"""Which session a user's word names: an id, a prefix, a folder, `latest`. Reads manifests alone."""

from __future__ import annotations

from pathlib import Path

from dsv4prof.api.words import plural
from dsv4prof.errors import InputError
from dsv4prof.recorder.sessions import find_session, list_sessions, scan_sessions

LATEST = "latest"
TRACE_SUFFIXES = (".json", ".json.gz", ".json.zst", ".pftrace")


def find_folder(wanted: str, sessions_dir: Path) -> Path:
    """A session's folder; of `latest` the newest with a trace. Raises InputError when there is none."""
    if "/" in wanted or wanted.endswith(TRACE_SUFFIXES):
        raise InputError(f"{wanted} does not exist", hint="dsv4prof sessions list shows what was recorded")
    if wanted == LATEST:
        recorded = (path for path, session in list_sessions(sessions_dir) if any(r.trace for r in session.ranks))
        newest = next(recorded, None)
        return newest if newest is not None else find_readable(sessions_dir, wanted)
    return find_readable(sessions_dir, wanted)


def find_readable(sessions_dir: Path, wanted: str) -> Path:
    """A session's folder. Raises InputError that says so when all there is cannot be read."""
    found, unreadable = scan_sessions(sessions_dir) if wanted == LATEST else ([], [])
    if unreadable and not found:
        why = unreadable[-1][1]
        raise InputError(
            f"no session under {sessions_dir} can be read ({plural(len(unreadable), 'unreadable one')}): {why}",
            hint="dsv4prof sessions list shows them with the reasons",
        )
    return find_session(sessions_dir, wanted)
