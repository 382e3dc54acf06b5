"""Waiting for the other ranks' last words, for so long and no longer.

A collective that waits for a rank whose export failed hangs all the others, and says nothing. Here nobody is waited for
who cannot answer any more, and the result names who failed and why. The ranks meet in their records in the session's
folder, so it works over every shared file system and after a process group is gone.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from dsv4prof.model.session import Outcome, RankRecord
from dsv4prof.recorder.sessions import settled
from dsv4prof.recorder.sink import record_path

_SHORTEST_S, _LONGEST_S = 0.01, 0.5
# The share of one core that a wait may take: a look at 1,024 living ranks of one host costs a tenth of a second.
_BUSY_SHARE = 0.1
_UNREADABLE = "its record cannot be read"


@dataclass(frozen=True, kw_only=True)
class BarrierResult:
    """Who arrived. Each rank is in one of the three.

    `failed` maps a rank to its reason: it saved nothing of use, or its process is gone. `missing` are those of whom
    nothing final was heard in `waited_s` seconds.
    """

    reported: list[int] = field(default_factory=list)
    failed: dict[int, str] = field(default_factory=dict)
    missing: list[int] = field(default_factory=list)
    waited_s: float = 0.0

    @property
    def complete(self) -> bool:
        return not self.failed and not self.missing

    @property
    def sentence(self) -> str:
        """`rank 3 failed: disk full; ranks 0-2, 4-7 saved`."""
        by_reason: dict[str, list[int]] = {}
        for rank, reason in sorted(self.failed.items()):
            by_reason.setdefault(reason, []).append(rank)
        parts = [f"{name_ranks(ranks)} failed: {reason}" for reason, ranks in by_reason.items()]
        if self.missing:
            parts.append(f"{name_ranks(self.missing)} did not report in {self.waited_s:.1f} s")
        if self.reported:
            parts.append(f"{name_ranks(self.reported)} saved")
        return "; ".join(parts)


def has_ended(record: RankRecord) -> bool:
    """Whether a rank has said how its recording ended."""
    return record.outcome is not Outcome.RECORDING


def await_ranks(
    folder: Path,
    world_size: int,
    *,
    patience_s: float,
    reached: Callable[[RankRecord], bool] = has_ended,
) -> BarrierResult:
    """Wait until every rank of the session has `reached` a point, has failed or is gone, at most `patience_s` seconds.

    A rank whose process died on this host is noticed within half a second, one on another host only by the patience; so
    is one that never wrote a record. A patience of 0 takes one look. A folder that was removed ends the wait. On NFS a
    record can be seen as late as its attribute cache allows (60 s by default).
    """
    watch = _Watch(folder, world_size, reached)
    began = time.monotonic()
    pause = _SHORTEST_S
    while True:
        looked = time.monotonic()
        there = watch.look()
        now = time.monotonic()
        left = began + patience_s - now
        if not watch.pending or not there or left <= 0:
            return watch.result(now - began)
        pause = min(_LONGEST_S, pause * 1.5)
        time.sleep(min(left, max(pause, (now - looked) / _BUSY_SHARE)))


def name_ranks(ranks: Iterable[int]) -> str:
    """`rank 3` or `ranks 0-2, 4-7`."""
    ordered = sorted(set(ranks))
    runs: list[list[int]] = []
    for rank in ordered:
        if runs and rank == runs[-1][-1] + 1:
            runs[-1].append(rank)
        else:
            runs.append([rank])
    words = [str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs]
    return ("rank " if len(ordered) == 1 else "ranks ") + ", ".join(words)


class _Watch:
    """What is known of each rank. A record is read again only when its file was replaced."""

    def __init__(self, folder: Path, world_size: int, reached: Callable[[RankRecord], bool]) -> None:
        self._folder = folder
        self._reached = reached
        self._records: dict[int, RankRecord | None] = {}
        self._seen: dict[int, tuple[int, int, int]] = {}
        self._reported: list[int] = []
        self._failed: dict[int, str] = {}
        self.pending: dict[int, str] = {rank: record_path(folder, rank).name for rank in range(world_size)}

    def look(self) -> bool:
        """Learn what is new; False when the folder is gone."""
        try:
            with os.scandir(self._folder) as entries:
                names = {entry.name for entry in entries}
        except FileNotFoundError:
            return False
        except OSError:
            # A network file system that hiccups; the patience bounds it.
            return True
        for rank, name in list(self.pending.items()):
            if name in names:
                self._refresh(rank)
                self._judge(rank)
        return True

    def result(self, waited_s: float) -> BarrierResult:
        unreadable = {rank for rank in self.pending if rank in self._seen and self._records.get(rank) is None}
        return BarrierResult(
            reported=sorted(self._reported),
            failed=self._failed | dict.fromkeys(sorted(unreadable), _UNREADABLE),
            missing=[rank for rank in self.pending if rank not in unreadable],
            waited_s=waited_s,
        )

    def _refresh(self, rank: int) -> None:
        path = record_path(self._folder, rank)
        try:
            status = path.stat()
            # Records are replaced by renaming: a new one is another file.
            stamp = (status.st_ino, status.st_mtime_ns, status.st_size)
            if self._seen.get(rank) == stamp:
                return
            data = path.read_bytes()
        except OSError:
            return
        self._seen[rank] = stamp
        try:
            self._records[rank] = msgspec.json.decode(data, type=RankRecord)
        except msgspec.DecodeError:
            self._records[rank] = None

    def _judge(self, rank: int) -> None:
        record = self._records.get(rank)
        if record is None:
            return
        if record.outcome is Outcome.RECORDING and not self._reached(record):
            if settled(record, self._folder).outcome is Outcome.RECORDING:
                return
            # Its last word may have been written between our reading and its end.
            self._refresh(rank)
            again = self._records.get(rank)
            record = record if again is None else settled(again, self._folder)
        if (reason := _why_failed(record)) is not None:
            self._failed[rank] = reason
        elif self._reached(record):
            self._reported.append(rank)
        else:
            return
        del self.pending[rank]


def _why_failed(record: RankRecord) -> str | None:
    """Nothing of use was saved. A window that is shorter than planned is saved all the same."""
    if record.outcome in (Outcome.FAILED, Outcome.MISSING) or (
        record.outcome is Outcome.INCOMPLETE and record.trace is None and not any(w.files for w in record.windows)
    ):
        return (record.reason or record.outcome.value).rstrip(".")
    return None
