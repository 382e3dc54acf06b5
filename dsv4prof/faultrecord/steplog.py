"""Every server writes its steps in words of its own: read a log of steps whatever its fields are called.

A line is a JSON object: a step (it has a step number, or a time and a batch) or a heartbeat (it says what the device
does while no step ends). Fields are found by the names that servers use for them.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from dsv4prof.faultrecord.clocks import time_of
from dsv4prof.faultrecord.step_fields import (
    AGE,
    DURATION,
    END,
    KERNEL,
    LAST_STEP,
    PADDED,
    PADDING,
    RUNNING,
    STEP,
    TIME,
    UTIL,
)  # fmt: skip
from dsv4prof.faultrecord.step_values import Value, keep_numbers

_OVER = re.compile(r"shut ?down|stopp?(?:ed|ing)|exit|finish|drained|complete|\bend\b", re.IGNORECASE)
_BEAT = re.compile(r"heart ?_?beat|watch ?dog|alive|probe|monitor", re.IGNORECASE)
_CAMEL = re.compile(r"(?<=[a-z0-9])([A-Z])")


class Step(msgspec.Struct, frozen=True):
    """One step as it was logged. `lists` are its lists of whole numbers by dotted name, `scalars` all else that is
    plain; in a list stands what is no whole number as its text ("NaN"), and None where the log has no value. `ended`
    says whether the log tells that it ended: None where it does not say.
    """

    index: int | None
    time_s: float | None
    running: int | None
    padded: int | None
    lists: Mapping[str, tuple[Value, ...]]
    scalars: dict[str, Any]
    line: int
    rank: int | None = None
    ended: bool | None = None

    @property
    def name(self) -> str:
        return f"step {self.index}" if self.index is not None else f"the step in line {self.line}"

    @property
    def slots(self) -> int | None:
        """How many rows of a batch the step's lists have."""
        return self.padded if self.padded is not None else self.running


class Heartbeat(msgspec.Struct, frozen=True):
    """What a watcher said while no step ended. `util` is a share, 1.0 the whole device."""

    time_s: float | None
    last_step: int | None
    kernel: str
    age_s: float | None
    util: float | None
    running: int | None
    line: int
    rank: int | None = None


class StepLog(msgspec.Struct, frozen=True):
    """A log of steps. `over` says that its writer ended in good order; `unreadable` counts lines that are no JSON (a
    process that died in the middle of one leaves one).
    """

    steps: tuple[Step, ...]
    heartbeats: tuple[Heartbeat, ...]
    over: bool
    unreadable: int


def read_step_log(text: str) -> StepLog | None:
    """The steps in a text of JSON lines (or one JSON list); None for what holds no step at all."""
    steps: list[Step] = []
    beats: list[Heartbeat] = []
    over, unreadable = False, 0
    for number, item in _objects(text):
        if not isinstance(item, dict):
            unreadable += item is None
            continue
        if _is_beat(item):
            beats.append(_beat(item, number))
        elif _field(item, STEP) is not None or (_field(item, TIME) is not None and _field(item, RUNNING) is not None):
            steps.append(_step(item, number))
        elif any(
            _OVER.search(str(item.get(key, ""))) for key in ("event", "type", "status", "state", "msg", "message")
        ):
            over = True
    if not steps:
        return None
    return StepLog(tuple(steps), tuple(beats), over, unreadable)


def _objects(text: str) -> Iterable[tuple[int, Any]]:
    text = text.removeprefix("\ufeff")
    whole = _json(text) if text.lstrip().startswith("[") or "\n" not in text.strip() else None
    rows = next((each for each in whole.values() if _is_rows(each)), None) if isinstance(whole, Mapping) else whole
    if isinstance(rows, list):
        yield from ((number, _snake(each)) for number, each in enumerate(rows, start=1))
        return
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            yield number, _snake(_json(line))


def _json(text: str) -> Any:
    """What the text holds; None for what is no JSON, or is nested deeper than any log."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _is_rows(value: object) -> bool:
    """Whether a value is a list of steps, not the batch of one step."""
    return (
        isinstance(value, list) and bool(value) and all(isinstance(row, Mapping) and _has(row, STEP) for row in value)
    )


def _has(item: Mapping[str, Any], names: tuple[str, ...]) -> bool:
    return _field(_snake(item), names) is not None


def _snake(item: Any) -> Any:
    """Names of fields with underscores, where a server writes them in camel case."""
    if not isinstance(item, Mapping):
        return item
    if not any(_CAMEL.search(key) or isinstance(value, Mapping) for key, value in item.items()):
        return item
    return {_CAMEL.sub(r"_\1", key).lower(): _snake(value) for key, value in item.items()}


def _is_beat(item: Mapping[str, Any]) -> bool:
    said = " ".join(str(item.get(key, "")) for key in ("event", "type", "kind", "msg", "record"))
    named = any(_BEAT.search(key) and value not in (False, None) for key, value in item.items())
    return named or bool(_BEAT.search(said)) or ("kernel_running" in item and _field(item, STEP) is None)


def _beat(item: Mapping[str, Any], line: int) -> Heartbeat:
    last, kernel = _number(_field(item, LAST_STEP)), _field(item, KERNEL)
    if isinstance(kernel, Mapping):
        item = {**item, **{f"kernel_{key}": value for key, value in kernel.items()}, **kernel}
        kernel = kernel.get("name", kernel.get("kernel"))
    util = _number(_field(item, UTIL))
    return Heartbeat(
        time_s=_seconds(item, TIME),
        last_step=None if last is None else int(last),
        kernel=kernel if isinstance(kernel, str) else "",
        age_s=_seconds(item, AGE),
        util=None if util is None else util / 100 if util > 1 else float(util),
        running=_count(_field(item, RUNNING)),
        line=line,
        rank=_count(item.get("rank")),
    )


def _step(item: Mapping[str, Any], line: int) -> Step:
    lists: dict[str, tuple[Value, ...]] = {}
    scalars: dict[str, Any] = {}
    _flatten("", item, lists, scalars)
    index = _number(_field(item, STEP))
    return Step(
        index=None if index is None else int(index),
        time_s=_seconds(item, TIME),
        running=_running(item),
        padded=_padded(item),
        lists=lists,
        scalars={key: value for key, value in scalars.items() if key not in (*STEP, *TIME)},
        line=line,
        rank=_count(item.get("rank")),
        ended=_ended(item),
    )


def _running(item: Mapping[str, Any]) -> int | None:
    """Rows with a request. `batch` may be their number, and the number of the batch as well: of a log that pads, it is
    taken where it is no more than the rows with padding.
    """
    running, batch = _count(_field(item, RUNNING)), item.get("batch")
    if running is not None or isinstance(batch, Mapping):
        return running
    count, rows = _count(batch), _count(_field(item, PADDED))
    if count is None or rows is None or not 0 <= count <= rows or (isinstance(batch, list) and count == rows):
        return None
    return count


def _padded(item: Mapping[str, Any]) -> int | None:
    """Rows with padding; some servers log how many of them are padding."""
    padded = _count(_field(item, PADDED))
    running, padding = _running(item), _count(_field(item, PADDING))
    return running + padding if padded is None and running is not None and padding is not None else padded


def _ended(item: Mapping[str, Any]) -> bool | None:
    state = str(item.get("status", item.get("state", item.get("event", "")))).lower()
    if state in ("begin", "begun", "start", "started", "launched", "running", "launch"):
        return False
    finished = state in ("end", "ended", "done", "ok", "finished", "complete", "completed")
    known = any(item.get(key) is not None for key in (*END, *DURATION))
    return True if finished or known else False if any(key in item for key in END) else None


def _flatten(
    prefix: str, item: Mapping[str, Any], lists: dict[str, tuple[Value, ...]], scalars: dict[str, Any]
) -> None:
    for key, value in item.items():
        name = f"{prefix}{key}"
        if isinstance(value, Mapping):
            _flatten(f"{name}.", value, lists, scalars)
        elif isinstance(value, list) and value and all(isinstance(each, Mapping) for each in value):
            # A row a request: its columns are the lists.
            for column in dict.fromkeys(column for row in value for column in row):
                keep_numbers(lists, f"{name}.{column}", [row.get(column) for row in value])
        elif isinstance(value, list) and value and all(isinstance(each, list) for each in value):
            keep_numbers(lists, name, [each for row in value for each in row])
        elif isinstance(value, list):
            keep_numbers(lists, name, value)
        elif isinstance(value, str | int | float | bool):
            scalars[name] = value


def _field(item: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    """The first of these fields that the object has, at its top or one level below it."""
    below = [each for each in item.values() if isinstance(each, Mapping)]
    return next((part[name] for part in (item, *below) for name in names if part.get(name) is not None), None)


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _count(value: object) -> int | None:
    """A number, or how many there are in a list of requests."""
    if isinstance(value, list):
        return len(value)
    number = _number(value)
    return None if number is None else int(number)


def _seconds(item: Mapping[str, Any], names: tuple[str, ...]) -> float | None:
    for name in names:
        value = item.get(name)
        number = _number(value)
        if number is not None:
            scale = {"ms": 1e-3, "us": 1e-6, "ns": 1e-9}.get(name.rpartition("_")[2], 1.0)
            return number * scale
        if isinstance(value, str) and (dated := time_of(value)) is not None:
            return dated
    return None
