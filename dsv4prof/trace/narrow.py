"""Which events of a rank go into a merged trace, when not all of them shall."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec
import numpy as np

from dsv4prof.errors import UsageError
from dsv4prof.model.trace import StepSpan
from dsv4prof.trace.columns import Rows

_PYTHON = frozenset({"python_function"})
_UNITS = {"ns": 1, "us": 10**3, "ms": 10**6, "s": 10**9, "": 10**9}
_TIME = re.compile(r"^\s*(\d+(?:\.\d+)?)\s*(ns|us|ms|s|%|)\s*$")


class TimeWindow(msgspec.Struct, frozen=True):
    """A part of the merged trace, ns from its beginning or, with `percent`, shares of its length."""

    start: float
    end: float
    percent: bool = False

    def of(self, origin_ns: int, last_ns: int) -> tuple[int, int]:
        """As absolute ns on the common clock."""
        if not self.percent:
            return origin_ns + round(self.start), origin_ns + round(self.end)
        length = last_ns - origin_ns
        return origin_ns + round(self.start / 100 * length), origin_ns + round(self.end / 100 * length)


class Narrowing(msgspec.Struct, frozen=True):
    """What to keep of every rank. Empty or None: everything. `steps` are indexes, the last one included."""

    ranks: frozenset[int] | None = None
    window: TimeWindow | None = None
    steps: tuple[int, int] | None = None
    categories: frozenset[str] | None = None
    python: bool = True

    @property
    def by_time(self) -> bool:
        """Whether it can only be applied when all ranks' clocks are known."""
        return self.window is not None or self.steps is not None


EVERYTHING = Narrowing()


class RankNarrow(msgspec.Struct, frozen=True):
    """The same for one rank: `windows` are ns as its file says them, without its base time."""

    windows: tuple[tuple[int, int], ...] | None = None
    categories: frozenset[str] | None = None
    python: bool = True

    def skips(self, rows: Rows, words: Sequence[str]) -> np.ndarray:
        """Which rows are left out. A slice is kept whole when any part of it lies in a window."""
        skip = np.zeros(len(rows), bool)
        if self.windows is not None:
            inside = np.zeros(len(rows), bool)
            for start, end in self.windows:
                inside |= (rows["ts"] < end) & (rows["ts"] + rows["dur"] >= start)
            skip |= ~inside
        if self.categories is None and self.python:
            return skip
        unwanted = np.array([self._unwanted(word) for word in words], bool)
        # Arrows go with the slices that they begin and end in.
        return skip | (unwanted[rows["cat"]] & ~np.isin(rows["ph"], [ord(ph) for ph in "stf"]))

    def _unwanted(self, category: str) -> bool:
        if not self.python and category in _PYTHON:
            return True
        return self.categories is not None and category not in self.categories


KEEP_ALL = RankNarrow()


def parse_window(text: str) -> TimeWindow:
    """`10ms:50ms`, `0.1s:0.2s`, `10%:11%`; a bare number is seconds. Raises UsageError."""
    hint = "give FROM:TO with ns, us, ms, s (or nothing, for s) or %, from the trace's beginning: --window 10ms:50ms"
    first, _, second = text.partition(":")
    ends = [_TIME.match(each) for each in (first, second)]
    if ends[0] is None or ends[1] is None:
        raise UsageError(f"{text!r} is no time window", hint=hint)
    percent = {end[2] == "%" for end in ends if end is not None}
    if len(percent) > 1:
        raise UsageError(f"{text!r} mixes shares and times", hint=hint)
    start, end = (float(match[1]) * _UNITS.get(match[2], 1) for match in ends if match is not None)
    if end <= start:
        raise UsageError(f"the window {text!r} ends before it begins", hint=hint)
    return TimeWindow(start, end, percent=percent == {True})


def parse_numbers(text: str, what: str) -> frozenset[int]:
    """`0,2,5-7` as numbers. Raises UsageError."""
    numbers: set[int] = set()
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,9})(?:\s*-\s*(\d{1,9}))?\s*", part)
        low, high = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if high < low or high - low > 1_000_000:
            raise UsageError(f"{text!r} names no {what}", hint="give numbers and ranges such as 0,2,5-7")
        numbers.update(range(low, high + 1))
    return frozenset(numbers)


def step_windows(steps: Sequence[StepSpan], wanted: tuple[int, int]) -> list[tuple[int, int]]:
    """The time of the steps with an index in `wanted`, as one window."""
    chosen = [step for step in steps if wanted[0] <= step.index <= wanted[1]]
    return [(min(s.start_ns for s in chosen), max(s.end_ns for s in chosen))] if chosen else []
