"""List, show and prune recorded sessions."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from dsv4prof import __version__
from dsv4prof.api.configuring import settings_section
from dsv4prof.api.finding import find_readable
from dsv4prof.api.words import plural
from dsv4prof.model.report import Cell, Check, Column, Provenance, Report, Section, Verdict
from dsv4prof.model.session import Outcome, RankRecord, Session, WindowRecord
from dsv4prof.recorder.sessions import list_sessions, open_session, remove_session, scan_sessions
from dsv4prof.target.failures import without_source_line

_LIST_COLUMNS = [
    Column("id", "id"),
    Column("created", "created"),
    Column("name", "name"),
    Column("ranks", "ranks", "count"),
    Column("steps", "steps", "count"),
    Column("bytes", "size", "bytes"),
    Column("outcome", "outcome"),
]
_RANK_COLUMNS = [
    Column("rank", "rank", "count"),
    Column("outcome", "outcome"),
    Column("window", "window"),
    Column("steps", "steps", "count"),
    Column("ended_by", "ended by"),
    Column("trace", "trace"),
    Column("bytes", "size", "bytes"),
    Column("stop_ns", "stop", "ns"),
    Column("export_ns", "export", "ns"),
    Column("freed", "released"),
    Column("reason", "reason"),
]


def sessions_list(root: Path) -> Report:
    """The sessions under `root`, newest last so that a terminal ends on it; what cannot be read comes first."""
    found, unreadable = scan_sessions(root)
    found.reverse()
    rows = [_row(folder, session) for folder, session in found]
    facts = [{**row, "reason": s.reason, "path": str(folder)} for row, (folder, s) in zip(rows, found, strict=True)]
    damaged = [{**_unreadable_row(folder), "reason": why, "path": str(folder)} for folder, why in unreadable]
    recorded = any(_recorded(session) for _, session in found)
    summary = f"{plural(len(found), 'session')} in {root}" if found else f"no sessions in {root}"
    shown = [*(_unreadable_row(folder) for folder, _ in unreadable), *rows]
    return Report(
        kind="sessions",
        provenance=Provenance(command="sessions list", inputs=[str(root)], versions={"dsv4prof": __version__}),
        sections=[Section(key="sessions", title="Sessions", columns=_LIST_COLUMNS, rows=shown)] if shown else [],
        notes=[f"unreadable: {why}" for _, why in unreadable],
        verdict=Verdict(exit_code=0, summary=summary),
        next_command="dsv4prof analyze latest" if recorded else "dsv4prof run --profile",
        data={"sessions": [*damaged, *facts]},
    )


def sessions_show(wanted: str, root: Path) -> Report:
    """One session: its ranks with outcome, cost and release, and its manifest for machines."""
    folder = find_readable(root, wanted)
    session = open_session(folder)
    checks = [
        Check(
            key="outcome",
            ok={Outcome.COMPLETE: True, Outcome.RECORDING: None}.get(session.outcome, False),
            message=f"{folder}: {session.outcome.value}" + (f", {_reason(session.reason)}" if session.reason else ""),
        )
    ]
    rows = [row for record in session.ranks for row in _rank_rows(record)]
    return Report(
        kind="session",
        provenance=Provenance(
            command="sessions show", inputs=[str(folder)], session=session.id, versions=session.versions
        ),
        checks=checks,
        sections=[
            Section(key="ranks", title="Ranks", columns=_RANK_COLUMNS, rows=rows),
            settings_section(session.settings),
        ],
        verdict=Verdict(exit_code=0, summary=f"session {session.id}: {session.outcome.value}"),
        next_command=f"dsv4prof analyze {session.id}" if _recorded(session) else "dsv4prof run --profile",
        data={"manifest": msgspec.to_builtins(session), "path": str(folder)},
    )


def sessions_prune(root: Path, *, keep: int, delete: bool) -> Report:
    """Delete all but the `keep` newest; without `delete` only say which.

    A session that still records is kept, and so is what cannot be read.
    """
    old = [item for item in list_sessions(root)[keep:] if item[1].outcome is not Outcome.RECORDING]
    freed = sum(_size(folder) for folder, _ in old if not folder.is_symlink())
    rows = [_row(folder, session) for folder, session in reversed(old)]
    if delete:
        for folder, _ in old:
            remove_session(folder)
    done = "deleted" if delete else "would delete"
    return Report(
        kind="prune",
        provenance=Provenance(command="sessions prune", inputs=[str(root)], versions={"dsv4prof": __version__}),
        sections=[Section(key="sessions", title=done, columns=_LIST_COLUMNS, rows=rows)] if rows else [],
        verdict=Verdict(exit_code=0, summary=f"{done} {plural(len(old), 'session')}, {freed / 1e6:.1f} MB"),
        next_command=None if delete or not old else f"dsv4prof sessions prune --keep {keep} --yes",
        data={"sessions": [str(folder) for folder, _ in old], "bytes": freed, "deleted": delete},
    )


def _recorded(session: Session) -> bool:
    return any(record.trace for record in session.ranks)


def _row(folder: Path, session: Session) -> dict[str, Cell]:
    return {
        "id": session.id,
        "created": session.created,
        "name": session.name,
        "ranks": len(session.ranks),
        "steps": max((rank.steps for rank in session.ranks), default=0),
        "bytes": _size(folder),
        "outcome": session.outcome.value,
    }


def _unreadable_row(folder: Path) -> dict[str, Cell]:
    return {"id": folder.name.rpartition("-")[2], "name": folder.name, "bytes": _size(folder), "outcome": "unreadable"}


def _rank_rows(record: RankRecord) -> list[dict[str, Cell]]:
    """A row for each window of a rank; one that opened none has a row as well."""
    rank: dict[str, Cell] = {
        "rank": record.coordinates.rank,
        "outcome": record.outcome.value,
        "reason": _reason(record.reason),
    }
    return [{**rank, **_window_cells(window)} for window in record.windows] or [{**rank, "steps": 0}]


def _reason(reason: str | None) -> str | None:
    """For a person; the manifest beside it keeps all of it."""
    return without_source_line(reason) if reason else None


def _window_cells(window: WindowRecord) -> dict[str, Cell]:
    return {
        "window": window.name or None,
        "steps": window.steps,
        "ended_by": window.ended_by.value if window.ended_by is not None else None,
        "trace": window.trace,
        "bytes": window.trace_bytes,
        "stop_ns": window.stop_ns,
        "export_ns": window.export_ns,
        "freed": window.release.freed if window.release else None,
    }


def _size(folder: Path) -> int:
    """Bytes of the files below a folder; those that vanish meanwhile, and links, count nothing."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += Path(parent, name).lstat().st_size
            except FileNotFoundError:
                continue
    return total
