"""Merge: every rank is looked at once, all are planned together, and every rank is read again as it is written.

Memory is that of one rank's columns (some 60 bytes an event), whatever the number of ranks; with several processes, of
one rank in each. The file is written beside its place and renamed, and its bytes do not depend on the number of
processes or on the order of input.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import ExitStack
from multiprocessing import get_context
from pathlib import Path
from typing import BinaryIO, Protocol

import msgspec

from dsv4prof.errors import InputError, NotATraceError, OutputError
from dsv4prof.trace.clocks import Align
from dsv4prof.trace.columns import SegmentEncoder, SegmentHead
from dsv4prof.trace.gzips import Part, PartWriter, header, trailer
from dsv4prof.trace.narrow import KEEP_ALL, Narrowing, RankNarrow, step_windows
from dsv4prof.trace.part import MergedPart
from dsv4prof.trace.planning import MergePlan, RankPlan, Surveyed, narrowed, plan
from dsv4prof.trace.ranks import RankFile, RankSource, read_all
from dsv4prof.trace.scratch import scratch_folder, whole_or_absent
from dsv4prof.trace.segment import Clock, SegmentWriter
from dsv4prof.trace.survey import save, survey
from dsv4prof.trace.write import JsonFormat

_WATCH_S = 2.0


class Format(Protocol):
    """How a merged trace is written: what comes before, between and behind the ranks' segments."""

    separator: bytes

    def head(self, plan: MergePlan) -> bytes: ...

    def tail(self) -> bytes: ...

    def encoder(self, head: SegmentHead) -> SegmentEncoder: ...


class Options(msgspec.Struct, frozen=True):
    """How to merge. `jobs` processes at most; `arrows`: between the same collective on all ranks."""

    align: Align = Align.AUTO
    arrows: bool = False
    narrowing: Narrowing = Narrowing()
    jobs: int = 1


class Refusal(msgspec.Struct, frozen=True):
    """A file that cannot be read as a rank; `other` when it is none: it reads well and is something else."""

    path: str
    message: str
    hint: str | None
    other: bool = False

    def error(self) -> InputError:
        return InputError(self.message, hint=self.hint)


class Merge:
    """A merge under way: `look` at the files, then `write` the plan. A context manager: it has a scratch folder."""

    def __init__(self, options: Options | None = None, *, scratch: Path | None = None) -> None:
        self._options = options or Options()
        self._where = scratch

    def __enter__(self) -> Merge:
        self._exits = ExitStack()
        try:
            self._scratch = self._exits.enter_context(scratch_folder(self._where))
        except OSError as error:
            raise _no_scratch(self._where or Path(tempfile.gettempdir()), error) from error
        self._pool: Executor | None = None
        if self._options.jobs > 1:
            # A fork of a process that profiles or has threads may hang.
            context = get_context("spawn")
            mine = (os.getpid(),)
            self._pool = ProcessPoolExecutor(self._options.jobs, context, _end_with_parent, mine)
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
        self._exits.close()

    def look(self, sources: Sequence[RankSource]) -> tuple[MergePlan, list[Refusal]]:
        """Plan the ranks that can be read, and say which cannot.

        Raises InputError when none can, when two claim one rank, or when the clocks cannot be aligned as asked.
        """
        found, refused = self._surveys([(source, KEEP_ALL) for source in sources], self._options.narrowing)
        if not found:
            raise refused[0].error() if refused else InputError("there is no trace to merge", hint="name rank files")
        whole = plan(found, self._options.align, with_arrows=self._options.arrows)
        wanted = self._options.narrowing
        if wanted.ranks is not None:
            whole = _only(whole, wanted.ranks)
        if wanted.by_time:
            whole = self._by_time(whole, wanted)
        return whole, refused

    def _surveys(
        self, asked: Sequence[tuple[RankSource, RankNarrow]], narrowing: Narrowing
    ) -> tuple[list[Surveyed], list[Refusal]]:
        jobs = [
            (source, _rank_narrow(narrow, narrowing), narrowing.steps is not None, self._scratch / f"{number}.layout")
            for number, (source, narrow) in enumerate(asked)
        ]
        try:
            results = list(self._map(_look, jobs))
        except OSError as error:
            raise _no_scratch(self._scratch.parent, error) from error
        return [r for r in results if isinstance(r, Surveyed)], [r for r in results if isinstance(r, Refusal)]

    def _by_time(self, whole: MergePlan, wanted: Narrowing) -> MergePlan:
        """Look again with each rank's own windows, and keep the clocks and the origin of the whole."""
        asked = [(rank.surveyed.source, _windows(rank, whole, wanted)) for rank in whole.ranks]
        found, refused = self._surveys(asked, wanted)
        if refused:
            raise refused[0].error()
        return narrowed(whole, found)

    def write(self, merge_plan: MergePlan, target: Path, format: Format | None = None) -> None:
        """Write `target` at once or not at all; compressed when its name ends in .gz.

        Raises OutputError when the folder cannot be written, InputError when an input changed meanwhile.
        """
        with whole_or_absent(target) as path, path.open("xb") as file:
            self._document(merge_plan, file, format or JsonFormat(), target.name.endswith(".gz"))

    def _document(self, merge_plan: MergePlan, file: BinaryIO, format: Format, compress: bool) -> None:
        file.write(header(compress=compress))
        parts = [_part(file, format.head(merge_plan), compress)]
        for part, path in self._segments(merge_plan, file, format, compress):
            if path is not None:
                with path.open("rb") as segment:
                    shutil.copyfileobj(segment, file, 1 << 20)
                path.unlink()
            parts.append(part)
        parts.append(_part(file, format.tail(), compress))
        file.write(trailer(parts, compress=compress))

    def _segments(
        self, merge_plan: MergePlan, file: BinaryIO, format: Format, compress: bool
    ) -> Iterator[tuple[Part, Path | None]]:
        first = next((place for place, rank in enumerate(merge_plan.ranks) if rank.rows), 0)
        clocks = [Clock(rank, merge_plan.origin_ns, merge_plan.clock_origin_ns) for rank in merge_plan.ranks]
        if self._pool is None:
            for place, rank in enumerate(merge_plan.ranks):
                yield _segment(rank, clocks[place], merge_plan.origin_ns, format, file, compress, place > first), None
            return
        jobs = []
        for place, rank in enumerate(merge_plan.ranks):
            path = self._scratch / f"{place}.segment"
            jobs.append((rank, clocks[place], merge_plan.origin_ns, format, path, compress, place > first))
        yield from self._map(_segment_file, jobs)

    def _map(self, work: Callable, jobs: list[tuple]) -> Iterator:
        if self._pool is None:
            return (work(job) for job in jobs)
        return self._pool.map(work, jobs)


def _no_scratch(folder: Path, error: OSError) -> OutputError:
    return OutputError(
        f"cannot write scratch files into {folder}: {error.strerror or error}",
        hint="they take some 2 MB for a rank of a million events",
    )


def _end_with_parent(parent: int) -> None:
    """A worker whose parent was killed would wait for work for ever."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_WATCH_S)
        os._exit(1)

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=watch, daemon=True).start()


def _look(job: tuple[RankSource, RankNarrow, bool, Path]) -> Surveyed | Refusal:
    """A pure function of the file and what to keep; the layout goes to the path."""
    source, narrow, with_steps, path = job
    try:
        if isinstance(source, RankFile) and not source.salvage:
            (summary, layout), source = read_all(source, lambda stream: survey(stream, narrow, with_steps=with_steps))
        else:
            summary, layout = survey(source.stream(), narrow, with_steps=with_steps)
    except InputError as error:
        other = isinstance(error, NotATraceError)
        return Refusal(str(getattr(source, "path", "")), error.message, error.hint, other)
    save(layout, path)
    return Surveyed(source, summary, path)


def _segment_file(job: tuple[RankPlan, Clock, int, Format, Path, bool, bool]) -> tuple[Part, Path]:
    rank, clock, origin_ns, format, path, compress, separated = job
    with path.open("wb") as file:
        return _segment(rank, clock, origin_ns, format, file, compress, separated), path


def _segment(
    rank: RankPlan, clock: Clock, origin_ns: int, format: Format, file: BinaryIO, compress: bool, separated: bool
) -> Part:
    stream = rank.surveyed.source.stream()
    prefix = "" if isinstance(rank.surveyed.source, MergedPart) else f"{rank.rank}:"
    encoder = format.encoder(SegmentHead(rank.rank, rank.rows, stream.words, origin_ns, prefix))
    part = PartWriter(file, compress=compress)
    between = format.separator if separated else b""

    def take(piece: bytes) -> None:
        nonlocal between
        if piece:
            part.write(between)
            part.write(piece)
            between = format.separator

    SegmentWriter(rank, rank.surveyed.read_layout(), clock, encoder).write(stream, take)
    return part.close()


def _part(file: BinaryIO, text: bytes, compress: bool) -> Part:
    part = PartWriter(file, compress=compress)
    part.write(text)
    return part.close()


def _only(whole: MergePlan, ranks: frozenset[int]) -> MergePlan:
    """The plan for some of its ranks, on the clock of all. Raises InputError when a rank is not there."""
    absent = sorted(ranks - {rank.rank for rank in whole.ranks})
    if absent:
        present = ", ".join(str(rank.rank) for rank in whole.ranks)
        raise InputError(f"there is no rank {absent[0]} to keep", hint=f"there are: {present}")
    kept = [rank for rank in whole.ranks if rank.rank in ranks]
    return msgspec.structs.replace(whole, ranks=kept, missing_ranks=[])


def _rank_narrow(narrow: RankNarrow, wanted: Narrowing) -> RankNarrow:
    return msgspec.structs.replace(narrow, categories=wanted.categories, python=wanted.python)


def _windows(rank: RankPlan, whole: MergePlan, wanted: Narrowing) -> RankNarrow:
    """What to keep in the terms of the rank's file: ns without its base, on its own clock."""
    windows: list[tuple[int, int]] = []
    if wanted.steps is not None:
        windows = step_windows(rank.survey.steps, wanted.steps)
        windows = [(start - rank.base_ns, end - rank.base_ns) for start, end in windows]
    if wanted.window is not None:
        start, end = wanted.window.of(whole.origin_ns, whole.last_ns)
        own = tuple(_own_time(rank, whole, at) for at in (start, end))
        windows = (
            [(max(low, own[0]), min(high, own[1])) for low, high in windows if low < own[1] and high > own[0]]
            if wanted.steps is not None
            else [(own[0], own[1])]
        )
    return RankNarrow(windows=tuple(windows))


def _own_time(rank: RankPlan, whole: MergePlan, at_ns: int) -> int:
    """A common time on the rank's own clock, as its file says it; to the nanosecond is enough for a window."""
    if rank.applied:
        return at_ns - rank.base_ns
    drift = (rank.clock.drift_ppm or 0.0) * 1e-6
    past = at_ns - whole.clock_origin_ns
    return round((past + rank.clock.offset_ns) / (1 - drift)) + whole.clock_origin_ns - rank.base_ns
