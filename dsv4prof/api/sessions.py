"""List, show and prune recorded sessions."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec

from dsv4prof import __version__
from dsv4prof.model.report import Check, Column, Provenance, Report, Section, Verdict
from dsv4prof.model.session import Outcome, RankRecord, Session
from dsv4prof.recorder.sessions import find_session, list_sessions, open_session

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
    Column("steps", "steps", "count"),
    Column("trace", "trace"),
    Column("bytes", "size", "bytes"),
    Column("stop_ns", "stop", "ns"),
    Column("export_ns", "export", "ns"),
    Column("freed", "released"),
    Column("reason", "reason"),
]


def sessions_list(root: Path) -> Report:
    """The sessions under `root`, newest last so that a terminal ends on it."""
    found = list(reversed(list_sessions(root)))
    rows = [_row(folder, session) for folder, session in found]
    summary = f"{len(found)} sessions in {root}" if found else f"no sessions in {root}"
    return Report(
        kind="sessions",
        provenance=Provenance(command="sessions list", inputs=[str(root)], versions={"dsv4prof": __version__}),
        sections=[Section(key="sessions", title="Sessions", columns=_LIST_COLUMNS, rows=rows)] if rows else [],
        verdict=Verdict(exit_code=0, summary=summary),
        next_command="dsv4prof analyze latest" if any(row["steps"] for row in rows) else "dsv4prof run --profile",
        data={"sessions": [{**row, "path": str(folder)} for row, (folder, _) in zip(rows, found, strict=True)]},
    )


def sessions_show(wanted: str, root: Path) -> Report:
    """One session: its ranks with outcome, cost and release, and its manifest for machines."""
    folder = find_session(root, wanted)
    session = open_session(folder)
    checks = [
        Check(
            key="outcome",
            ok={Outcome.COMPLETE: True, Outcome.RECORDING: None}.get(session.outcome, False),
            message=f"{folder}: {session.outcome.value}" + (f", {session.reason}" if session.reason else ""),
        )
    ]
    return Report(
        kind="session",
        provenance=Provenance(
            command="sessions show", inputs=[str(folder)], session=session.id, versions=session.versions
        ),
        checks=checks,
        sections=[
            Section(key="ranks", title="Ranks", columns=_RANK_COLUMNS, rows=[_rank_row(r) for r in session.ranks]),
            _settings_section(session),
        ],
        verdict=Verdict(exit_code=0, summary=f"session {session.id}: {session.outcome.value}"),
        next_command=f"dsv4prof analyze {session.id}",
        data={"manifest": msgspec.to_builtins(session), "path": str(folder)},
    )


def sessions_prune(root: Path, *, keep: int, delete: bool) -> Report:
    """Delete all but the `keep` newest; without `delete` only say which. A session that still records is kept."""
    old = [item for item in list_sessions(root)[keep:] if item[1].outcome is not Outcome.RECORDING]
    freed = sum(_size(folder) for folder, _ in old)
    rows = [_row(folder, session) for folder, session in reversed(old)]
    if delete:
        for folder, _ in old:
            shutil.rmtree(folder)
    done = "deleted" if delete else "would delete"
    return Report(
        kind="prune",
        provenance=Provenance(command="sessions prune", inputs=[str(root)], versions={"dsv4prof": __version__}),
        sections=[Section(key="sessions", title=done, columns=_LIST_COLUMNS, rows=rows)] if rows else [],
        verdict=Verdict(exit_code=0, summary=f"{done} {len(old)} sessions, {freed / 1e6:.1f} MB"),
        next_command=None if delete or not old else f"dsv4prof sessions prune --keep {keep} --yes",
        data={"sessions": [str(folder) for folder, _ in old], "bytes": freed, "deleted": delete},
    )


def _row(folder: Path, session: Session) -> dict[str, str | int | float | bool | None]:
    return {
        "id": session.id,
        "created": session.created,
        "name": session.name,
        "ranks": len(session.ranks),
        "steps": max((rank.steps for rank in session.ranks), default=0),
        "bytes": _size(folder),
        "outcome": session.outcome.value,
    }


def _rank_row(record: RankRecord) -> dict[str, str | int | float | bool | None]:
    return {
        "rank": record.coordinates.rank,
        "outcome": record.outcome.value,
        "steps": record.steps,
        "trace": record.trace,
        "bytes": record.trace_bytes,
        "stop_ns": record.stop_ns,
        "export_ns": record.export_ns,
        "freed": record.release.freed if record.release else None,
        "reason": record.reason,
    }


def _settings_section(session: Session) -> Section:
    rows: list[dict[str, str | int | float | bool | None]] = [
        {"setting": name, "value": str(value), "source": source} for name, (value, source) in session.settings.items()
    ]
    columns = [Column("setting", "setting"), Column("value", "value"), Column("source", "source")]
    return Section(key="settings", title="Settings", columns=columns, rows=rows)


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
