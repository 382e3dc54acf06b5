"""One event for one call, whatever number of layers saw it.

Layers speak at different times. One that wraps a call brackets it: what the others say meanwhile belongs to it. The
driver's callbacks come while it waits. Torch's warnings come last, when the Python binding returns, as many as the call
waited. So the calls of one line stay open to late words until the thread goes on to another line.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence

import msgspec

from dsv4prof.model.syncs import Direction, Kind, Layer, Observation, SyncEvent
from dsv4prof.sync import catalogue
from dsv4prof.sync.runtime.watch.expressions import FORMS, expression_at
from dsv4prof.sync.runtime.watch.policy import Level
from dsv4prof.sync.runtime.watch.scopes import Scope
from dsv4prof.sync.runtime.watch.stacks import Place

# Which layer's words are the most exact, first.
_EXACT: tuple[Layer, ...] = ("shadow", "dispatch", "copies", "explicit", "callbacks", "gpu_trace", "warn")
_ORDER: tuple[Layer, ...] = ("shadow", "explicit", "copies", "dispatch", "gpu_trace", "callbacks", "warn")
_MOST_OPEN = 64
WAITED_NS = 50_000
"""A call that only may wait did, if it took as long."""
# A wait for a stream inside torch, of which nothing more is known, brings something to the host.
_UNCLEAR = "DSV103"
_DIRECTIONS: dict[str, Direction] = {"DSV108": "h2d"}


class Call:
    """A call while layers still speak of it."""

    __slots__ = (
        "allowed_by", "began_ns", "counted", "counts", "level", "observations", "place", "region", "scope", "span_ns",
        "start_ns", "step", "warm",
    )  # fmt: skip

    def __init__(self, place: Place, scope: Scope | None) -> None:
        self.place, self.scope = place, scope
        self.region = scope.path if scope is not None else ""
        self.step = scope.step if scope is not None else None
        self.level: Level = "log"
        self.allowed_by = ""
        self.observations: list[Observation] = []
        self.counts: dict[Layer, int] = {}
        self.began_ns = 0
        # Waits that count against bounds: not in warm-up, not allowed.
        self.counted = 0
        self.warm = False
        self.span_ns: int | None = None
        self.start_ns = time.monotonic_ns()

    @property
    def times(self) -> int:
        counts = self.counts.values()
        return max(counts) if counts else 0

    @property
    def kind(self) -> Kind:
        """What the most exact layer says; a doubtful call that a layer saw waiting did wait."""
        if len(self.observations) == 1 and self.observations[0].kind is not Kind.SUSPECT:
            return self.observations[0].kind
        kinds = [each.kind for each in self._sorted()]
        if kinds[0] is Kind.SUSPECT:
            return Kind.SILENT if any(map(_waited, self.observations)) else Kind.SUSPECT
        return next((kind for kind in kinds if kind is Kind.REDUNDANT), kinds[0])

    @property
    def first(self) -> Observation:
        return self._sorted()[0]

    def add(self, observation: Observation) -> int:
        """Take an observation in; how many more waits that makes."""
        before = self._waits()
        self.observations.append(observation)
        self.counts[observation.layer] = self.counts.get(observation.layer, 0) + observation.times
        return self._waits() - before

    def waited(self) -> int:
        """It took so long that it did wait; how many more waits that makes."""
        before = self._waits()
        self.observations = [
            msgspec.structs.replace(each, kind=Kind.SILENT) if each.kind is Kind.SUSPECT else each
            for each in self.observations
        ]
        return self._waits() - before

    def _waits(self) -> int:
        return self.times if self.observations and self.kind.waits else 0

    def _sorted(self) -> list[Observation]:
        if len(self.observations) == 1:
            return self.observations
        return sorted(self.observations, key=lambda each: _EXACT.index(each.layer))

    def event(self, missing: Sequence[Layer] = ()) -> SyncEvent:
        """Everything that is known of it."""
        seen = self._sorted()
        first = seen[0]
        op = next((each.op for each in seen if each.op), "")
        form = next((each.form for each in seen if each.form), "")
        code = next((each.code for each in seen if each.code), "")
        if not code:
            op, form, code = self._guessed(op)
        return SyncEvent(
            kind=self.kind,
            direction=_DIRECTIONS.get(code, first.direction),
            op=op,
            reason=next((each.reason for each in seen if each.reason), ""),
            form=form,
            code="DSV112" if self.kind is Kind.REDUNDANT else code,
            times=self.times,
            shapes=next((each.shapes for each in seen if each.shapes), ()),
            stack=next((each.stack for each in seen if each.stack), ()) or self.place.frames,
            stream=next((each.stream for each in seen if each.stream is not None), None),
            thread=self.place.thread,
            start_ns=self.start_ns,
            blocked_ns=self.blocked_ns,
            layers=tuple(layer for layer in _ORDER if layer in self.counts),
            missing=tuple(missing),
            region=self.region,
            step=self.step,
            level=self.level,
            allowed_by=self.allowed_by,
        )

    def _guessed(self, op: str) -> tuple[str, str, str]:
        """Operator, form and code by what the program wrote there, where no layer knows more than that it waited."""
        code = self.place.code
        found = expression_at(code, self.place.instruction) if code is not None else None
        if found is None:
            return op, "", _UNCLEAR
        form = FORMS.get(found.name, "")
        return op or found.text, form, catalogue.form(form).code if form else _UNCLEAR

    @property
    def blocked_ns(self) -> int | None:
        """The driver's own brackets are closer to the wait than those of Python round them."""
        driver = [each.blocked_ns for each in self.observations if each.layer == "callbacks"]
        measured = [each for each in driver if each is not None]
        return sum(measured) if measured else self.span_ns


class ThreadCalls:
    """The calls of one thread that layers still may speak of."""

    def __init__(self) -> None:
        self._key: object = None
        self._calls: deque[Call] = deque()
        self._open: list[Call] = []

    @property
    def pending(self) -> bool:
        return bool(self._calls)

    def find(self, observation: Observation, place: Place) -> Call | None:
        """The call that this is about; None: one that nobody has spoken of."""
        if self._open:
            return self._open[0] if observation.kind.waits or observation.kind is Kind.SUSPECT else None
        if place.key != self._key:
            return None
        if observation.layer == "callbacks":
            return next(
                (call for call in list(self._calls) if _lacks(call, "callbacks") and "gpu_trace" in call.counts), None
            )
        if observation.layer == "warn":
            return next((call for call in list(self._calls) if _lacks(call, "warn") and expects(call, "warn")), None)
        return None

    def settled(self, place: Place) -> list[Call]:
        """The calls that nothing more will be said of, now that the thread is at `place`."""
        if self._open:
            return []
        if place.key != self._key:
            self._key = place.key
            return self.drain()
        return [self._calls.popleft()] if len(self._calls) >= _MOST_OPEN else []

    def drain(self) -> list[Call]:
        """All of them, where the thread does something else, such as leaving a step."""
        gone = []
        # One at a time: another thread may settle what this one goes on adding to.
        for _ in range(len(self._calls)):
            try:
                call = self._calls.popleft()
            except IndexError:
                break
            if call in self._open:
                self._calls.append(call)
            else:
                gone.append(call)
        return gone

    def finish(self, call: Call, layer: Layer) -> bool:
        """Whether nothing more will be said of it, since the last layer has said all; it is let go then."""
        if call in self._open or _lacks(call, layer):
            return False
        try:
            self._calls.remove(call)
        except ValueError:
            return False
        return True

    def begin(self, call: Call) -> None:
        self._calls.append(call)

    def bracket(self, call: Call) -> None:
        self._open.append(call)

    def unbracket(self, call: Call, span_ns: int) -> bool:
        """Whether it was open here."""
        if call not in self._open:
            return False
        self._open.remove(call)
        call.span_ns = span_ns if call.span_ns is None else max(call.span_ns, span_ns)
        return True


def _waited(seen: Observation) -> bool:
    """Whether the driver was seen to wait, and not just to be asked."""
    return seen.layer == "callbacks" and seen.kind.waits and (seen.blocked_ns or 0) >= WAITED_NS


def _lacks(call: Call, layer: Layer) -> bool:
    return call.counts.get(layer, 0) < call.times


def expects(call: Call, layer: Layer) -> bool:
    """Whether a layer that is on sees a call of this kind, as far as torch was measured."""
    if layer in ("shadow", "explicit") or not call.kind.waits:
        return False
    first = call.first
    if layer == "callbacks":
        return first.direction != "alloc"
    if layer == "copies" and not first.form.endswith("nonblocking"):
        return False
    silent = any(each.kind is Kind.SILENT for each in call.observations)
    if layer == "warn":
        return not silent and (first.direction in ("d2h", "h2d") or first.form == "stream-synchronize")
    if layer == "gpu_trace":
        return first.direction != "alloc" and not (silent and first.form.endswith("nonblocking"))
    if layer == "copies":
        return silent
    # Operators are only shown in regions, and only of calls that are operators.
    looked = call.scope is not None and call.scope.looked
    return layer == "dispatch" and first.direction in ("d2h", "h2d") and looked
