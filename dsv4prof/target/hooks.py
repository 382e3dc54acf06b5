"""The engine announces steps, phases and spans; here they become names in a trace, or nothing at all.

A record_function name is what survives every profiler and vendor. While nothing records, an announcement costs one
attribute test and a shared null context.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol

from dsv4prof.model.annotation import format_annotation
from dsv4prof.sync.runtime.region import RegionCalls
from dsv4prof.sync.runtime.watch import Allowance, scopes

# Waits of the engine that are meant to be, by the span that they stand in.
INTENDED = {
    "read_tokens": Allowance(reason="the one wait of a step: its tokens decide what is scheduled next", times=1),
}


class PhaseName(Protocol):
    """The engine's phase: an enum whose value is the phase's name."""

    @property
    def value(self) -> str: ...


class SpanPass:
    """Looks into the spans of one step of each kind, the first that comes along; those steps must not be timed."""

    def __init__(self) -> None:
        self.calls = RegionCalls()
        self.steps = 0
        self._kinds: set[str] = set()
        self._looking = False

    def begin_step(self, kind: str) -> None:
        self._looking = kind not in self._kinds
        self._kinds.add(kind)
        self.steps += self._looking

    def span(self, name: str) -> AbstractContextManager[object]:
        return self.calls.region(name) if self._looking else nullcontext()


class Followed(Protocol):
    """Whoever records steps, or phases where `by_phase`, and is told where they begin and end."""

    by_phase: bool

    @property
    def recording(self) -> bool: ...
    def begin_step(self, stage: object) -> None: ...
    def end_step(self) -> None: ...


class ProfilingHooks:
    """Step hooks that annotate while `annotate` is on and show spans to `spans` while that is set.

    Where syncs are watched, a step of the engine is a step of the watch, and its phases and spans are regions.

    `followed`, while it is set, hears of every beginning and decides whether to annotate. Each phase's graph decision
    is counted while annotating, so that a manifest can say what was captured and why not.
    """

    def __init__(self) -> None:
        self.annotate = False
        self.spans: SpanPass | None = None
        self.followed: Followed | None = None
        self._nothing: AbstractContextManager[object] = nullcontext()
        self._gates: Counter[tuple[str, bool, str]] = Counter()

    def step(self, index: int, *, kind: str, requests: int, rows: int) -> AbstractContextManager[object]:
        if self.spans is not None:
            self.spans.begin_step(kind)
        if self.followed is not None and not self.followed.by_phase:
            self.followed.begin_step(kind)
            self.annotate = self.followed.recording
        named = self._nothing
        if self.annotate:
            named = _range(format_annotation("step", str(index), kind=kind, requests=requests, rows=rows))
        return self._within(scopes.step(index, kind=kind), named) if scopes.watched() else named

    def phase(
        self, phase: PhaseName, *, requests: int, rows: int, captured: bool, reason: str
    ) -> AbstractContextManager[object]:
        followed = self.followed if self.followed is not None and self.followed.by_phase else None
        if followed is not None:
            followed.begin_step(phase.value)
            self.annotate = followed.recording
        named = self._nothing
        if self.annotate:
            self._gates[phase.value, captured, reason] += 1
            graph = "captured" if captured else "eager"
            named = _range(format_annotation("phase", phase.value, requests=requests, rows=rows, graph=graph))
        if scopes.watched():
            named = self._within(scopes.region(phase.value, operators=False), named)
        return _ended(followed, named) if followed is not None else named

    def span(self, name: str) -> AbstractContextManager[object]:
        named = self._nothing
        if self.spans is not None:
            named = self.spans.span(name)
        elif self.annotate:
            named = _range(format_annotation("span", name))
        if not scopes.watched():
            return named
        return self._within(scopes.region(name, allowance=INTENDED.get(name)), named)

    def _within(
        self, scope: AbstractContextManager[object], named: AbstractContextManager[object]
    ) -> AbstractContextManager[object]:
        return scope if named is self._nothing else _both(scope, named)

    def accepted(self, *, requests: int, tokens: int) -> None:
        if self.annotate:
            with _range(format_annotation("accepted", requests=requests, tokens=tokens)):
                return

    def gates(self) -> dict[str, dict[str, Any]]:
        """By phase: whether it was captured, why, and how often; rarer decisions of the same phase under `others`."""
        found: dict[str, dict[str, Any]] = {}
        for (phase, captured, reason), count in self._gates.most_common():
            decision = {"captured": captured, "reason": reason, "count": count}
            if phase in found:
                found[phase].setdefault("others", []).append(decision)
            else:
                found[phase] = decision
        return found


@contextmanager
def _both(scope: AbstractContextManager[object], named: AbstractContextManager[object]) -> Iterator[None]:
    with scope, named:
        yield


@contextmanager
def _ended(followed: Followed, named: AbstractContextManager[object]) -> Iterator[None]:
    """A followed phase: its window may close with it, after its name has."""
    try:
        with named:
            yield
    finally:
        followed.end_step()


def _range(name: str) -> AbstractContextManager[object]:
    from torch.profiler import record_function

    return record_function(name)
