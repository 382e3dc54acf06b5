"""Counting against bounds: a level for each direction, a budget for each step or region, warm-up and allowances."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping

import msgspec

from dsv4prof.model.syncs import Direction, SyncEvent
from dsv4prof.sync.runtime.watch.merging import Call
from dsv4prof.sync.runtime.watch.policy import Allowance, Level, Levels
from dsv4prof.sync.runtime.watch.scopes import Scope

_MOST_VIOLATIONS = 100
_HINT = "dsv4prof.allow_syncs(reason) declares an intended sync"


class Violation(msgspec.Struct, frozen=True):
    """Something that is out of bounds, in one sentence."""

    message: str
    event: SyncEvent | None = None
    hint: str = _HINT


class Tally:
    """What one watch counts. Thread-safe: every thread brings its own scopes, the counts are shared."""

    def __init__(self, *, max_syncs: int | None, warmup: int, levels: Levels, allow: Mapping[str, Allowance]) -> None:
        self._max_syncs, self._warmup, self._levels, self._allow = max_syncs, warmup, levels, allow
        self._lock = threading.Lock()
        self._units: dict[Scope, int] = {}
        self._used: Counter[tuple[int, str]] = Counter()
        self._begun = 0
        self._unarmed: set[Scope] = set()
        self._finished = False
        self.syncs = 0
        self.warm = 0
        self.allowed = 0
        self.units = 0
        self.steps = 0
        self.most = 0
        self.over = 0
        self.histogram: Counter[int] = Counter()
        self.violations: list[Violation] = []

    def grew(self, call: Call, times: int) -> Violation | None:
        """Count `times` more waits of a call; a violation when its direction is not allowed where it stands."""
        first = call.first
        call.level = self._level(call, first.direction)
        if times == 0 or call.level == "allow":
            return None
        with self._lock:
            if not self._armed(call.scope):
                self.warm += times
                call.warm = True
                return None
            call.allowed_by = call.allowed_by or self._reason(call, first.direction)
            if call.allowed_by:
                self.allowed += times
                return None
            self.syncs += times
            call.counted += times
            if call.scope is not None:
                call.scope.counted(times)
                if call.scope.unit is not None:
                    self._units[call.scope.unit] = self._units.get(call.scope.unit, 0) + times
            if call.level != "disallow":
                return None
            violation = Violation(f"a sync that is not allowed: {spelled(call)}", call.event())
            self._add(violation)
            return violation

    def _level(self, call: Call, direction: Direction) -> Level:
        inner = call.scope.level_of(direction) if call.scope is not None else None
        return inner or self._levels.of(direction) or "log"

    def _reason(self, call: Call, direction: Direction) -> str:
        scope = call.scope
        if scope is None:
            return ""
        reason = scope.allowed(direction)
        if reason or not self._allow:
            return reason
        name, at = scope.name, scope
        while at.parent is not None and not at.name:
            at = at.parent
            name = at.name
        for key in (scope.path, name):
            given = self._allow.get(key)
            if given is not None and given.covers(direction):
                used = (id(at), key)
                if given.times is None or self._used[used] < given.times:
                    self._used[used] += 1
                    return given.reason
        return ""

    def _armed(self, scope: Scope | None) -> bool:
        unit = scope.unit if scope is not None else None
        if unit is None:
            return self._begun >= self._warmup
        if unit not in self._units:
            self._units[unit] = 0
            self._begun += 1
            if self._begun <= self._warmup:
                self._unarmed.add(unit)
        return unit not in self._unarmed

    def unit_ended(self, unit: Scope) -> None:
        """A step, or an outermost region, is over."""
        with self._lock:
            armed = self._armed(unit)
            count = self._units.pop(unit, 0)
            self._unarmed.discard(unit)
            if not armed:
                return
            self.units += 1
            self.steps += unit.kind == "step"
            self.most = max(self.most, count)
            self.histogram[count] += 1
            if self._max_syncs is not None and count > self._max_syncs:
                self.over += 1
                self._add(Violation(f"{_unit(unit)} waited {count} times, and {self._max_syncs} are allowed"))

    def scope_ended(self, scope: Scope) -> None:
        """Any scope is over; it may have a budget of its own."""
        if scope.max_syncs is None and not self._used:
            return
        with self._lock:
            for key in (scope.path, scope.name):
                self._used.pop((id(scope), key), None)
            if scope.max_syncs is not None and scope.syncs > scope.max_syncs:
                self._add(
                    Violation(f"{_unit(scope)} waited {scope.syncs} times, and {scope.max_syncs} are allowed there")
                )

    def forget(self) -> None:
        """A forked child begins with nothing; no other thread of the parent goes on in it."""
        self._lock = threading.Lock()
        self._units, self._used, self._unarmed = {}, Counter(), set()
        self._begun = self.syncs = self.warm = self.allowed = 0
        self.units = self.steps = self.most = self.over = 0
        self.histogram, self.violations = Counter(), []

    def finish(self, *, whole: bool) -> None:
        """The block is over; without a single step or region its budget is that of the block."""
        with self._lock:
            if not whole or self._finished:
                return
            self._finished = True
            if self._max_syncs is not None and self._begun == 0 and self.syncs > self._max_syncs:
                self.over += 1
                self._add(Violation(f"the block waited {self.syncs} times, and {self._max_syncs} are allowed"))

    def _add(self, violation: Violation) -> None:
        if len(self.violations) < _MOST_VIOLATIONS:
            self.violations.append(violation)


def _unit(scope: Scope) -> str:
    return f"step {scope.step}" if scope.kind == "step" else f"region {scope.path}"


def spelled(call: Call) -> str:
    """`item (aten::_local_scalar_dense) at model.py:12 in forward, region step/verify`."""
    event = call.event()
    frame = event.stack[0] if event.stack else None
    where = f" at {frame.file}:{frame.line} in {frame.function}" if frame is not None else ""
    region = f", region {event.region}" if event.region else ""
    return f"{event.op or event.reason}{where}{region}"
