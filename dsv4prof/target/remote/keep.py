"""A server's files become a session: moved under our names, with a record for every rank, the lost ones included."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from dsv4prof.errors import OutputError
from dsv4prof.model.session import EndedBy, Outcome, RankCoordinates, RankRecord, WindowRecord
from dsv4prof.recorder.atomic import atomic_path
from dsv4prof.recorder.sink import rank_name, write_record
from dsv4prof.target.remote.collect import Found, files_in
from dsv4prof.target.remote.expected import SUFFIX


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """How a recording came to its end: what is the same for all ranks.

    `by_server` are the windows (rank, name) that the server had closed before it was told to stop. `absent` says why a
    window that is not there is not there. `cut`: the recording was interrupted.
    """

    by_server: frozenset[tuple[int, str]] = frozenset()
    steps: int | None = None
    by_stage: bool = False
    cut: bool = False
    absent: str


def keep_ranks(
    folder: Path,
    found: Iterable[Found],
    ranks: Sequence[RankCoordinates],
    windows: Sequence[str],
    ending: Ending,
    versions: dict[str, str],
) -> list[RankRecord]:
    """Move every file into the session's folder and write every rank's record. Raises OutputError."""
    by_rank: dict[int, list[Found]] = {rank.rank: [] for rank in ranks}
    coordinates = {rank.rank: rank for rank in ranks}
    for item in found:
        by_rank.setdefault(item.file.coordinates.rank, []).append(item)
        # The file knows more than the server's sizes: which DP or EP group it was in.
        coordinates[item.file.coordinates.rank] = item.file.coordinates
    records = [
        _rank(folder, coordinates[rank], _ordered(items, windows), windows, ending, versions)
        for rank, items in sorted(by_rank.items())
    ]
    for record in records:
        write_record(folder, record)
    return records


def keep_snapshots(folder: Path, source: Path, before: frozenset[str]) -> list[str]:
    """Allocator snapshots that lie beside the traces, moved under their own names, which do not tell the DP rank.

    Nor do they tell whose they are: those that were there `before` are somebody else's.
    """
    if folder == source or not source.is_dir():
        return []
    names = []
    for path in files_in(source):
        if path.name in before or not path.match("*-memory*.pickle"):
            continue
        _move(path, folder / path.name)
        names.append(path.name)
    return names


def leave_rest(source: Path, profile_id: str, dropped: Callable[[str], bool], *, ours: bool) -> list[str]:
    """What a server wrote and no rank was given: its names. Only files of stages that nobody asked for are deleted.

    In a folder that is not `ours` only what carries the recording's id counts.
    """
    for path in files_in(source):
        if dropped(path.name):
            with suppress(OSError):
                path.unlink()
    try:
        names = sorted(path.name for path in source.iterdir())
    except OSError:
        return []
    return [name for name in names if ours or name.startswith(profile_id)]


def _ordered(items: list[Found], windows: Sequence[str]) -> list[Found]:
    return sorted(items, key=lambda item: [*windows, item.file.window].index(item.file.window))


def _rank(
    folder: Path,
    rank: RankCoordinates,
    items: list[Found],
    windows: Sequence[str],
    ending: Ending,
    versions: dict[str, str],
) -> RankRecord:
    kept = [_window(folder, item, ending) for item in items]
    reasons = [window.reason for window in kept if window.reason]
    names = {window.name for window in kept}
    # A server that was stopped inside a stage does not name it.
    absent = [] if "" in names else [name for name in windows if name not in names]
    reasons += [f"no {name} window: {ending.absent}" if name else f"no trace: {ending.absent}" for name in absent]
    outcome = Outcome.COMPLETE if not reasons else Outcome.INCOMPLETE if kept else Outcome.MISSING
    return RankRecord(
        coordinates=rank,
        outcome=outcome,
        reason="; ".join(reasons) or None,
        windows=kept,
        versions=versions,
    )


def _window(folder: Path, item: Found, ending: Ending) -> WindowRecord:
    name = item.file.window
    base = ".".join(filter(None, [rank_name(item.file.coordinates), name]))
    target = folder / f"{base}{SUFFIX}"
    _move(item.path, target, whole=item.whole)
    reason = None
    if not item.bytes:
        reason = f"{target.name} is empty"
    elif not item.whole:
        reason = f"{target.name} ends early: the server had not finished writing it"
    elif not item.operators and not item.events:
        reason = f"{target.name} has no events"
    elif ending.cut and _ended_by(item, ending) is EndedBy.STOP:
        reason = "interrupted before its end"
    return WindowRecord(
        name=name,
        steps=item.steps,
        ended_by=_ended_by(item, ending),
        reason=reason,
        trace=target.name,
        trace_bytes=item.bytes,
        events=item.events,
        events_by_thread=item.operators,
    )


def _ended_by(item: Found, ending: Ending) -> EndedBy:
    # A server that saves for long closes its window before our stop, and the file comes after it.
    by_itself = not ending.by_stage and ending.steps is not None and item.steps >= ending.steps
    if item.key not in ending.by_server and not by_itself:
        return EndedBy.STOP
    if ending.by_stage and ending.steps is not None and item.steps < ending.steps:
        return EndedBy.STAGE_CHANGE
    return EndedBy.MAX_STEPS


def _move(source: Path, target: Path, *, whole: bool = True) -> None:
    """Into place whole or not at all, across file systems too. What cannot be deleted at its source stays there."""
    if target.exists():
        raise OutputError(f"{target} exists already", hint="attach again: no trace is overwritten")
    try:
        try:
            source.rename(target)
        except OSError:
            with atomic_path(target) as part:
                shutil.copyfile(source, part)
            # Somebody may still be writing what is not whole.
            if whole:
                with suppress(OSError):
                    source.unlink()
    except OSError as error:
        raise OutputError(
            f"cannot move {source} to {target}: {error.strerror or error}", hint="the server's file is still there"
        ) from error
