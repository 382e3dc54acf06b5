"""The engine announces steps, phases and spans; here they become names in a trace, or nothing at all.

A record_function name is what survives every profiler and vendor. While nothing records, an announcement costs one
attribute test and a shared null context.
"""

from __future__ import annotations

from collections import Counter
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from dsv4prof.model.annotation import format_annotation
from dsv4prof.sync.runtime.region import RegionCalls


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


class ProfilingHooks:
    """Step hooks that annotate while `annotate` is on and show spans to `spans` while that is set.

    Each phase's graph decision is counted while annotating, so that a manifest can say what was captured and why not.
    """

    def __init__(self) -> None:
        self.annotate = False
        self.spans: SpanPass | None = None
        self._nothing: AbstractContextManager[object] = nullcontext()
        self._gates: Counter[tuple[str, bool, str]] = Counter()

    def step(self, index: int, *, kind: str, requests: int, rows: int) -> AbstractContextManager[object]:
        if self.spans is not None:
            self.spans.begin_step(kind)
        if not self.annotate:
            return self._nothing
        return _range(format_annotation("step", str(index), kind=kind, requests=requests, rows=rows))

    def phase(
        self, phase: PhaseName, *, requests: int, rows: int, captured: bool, reason: str
    ) -> AbstractContextManager[object]:
        if not self.annotate:
            return self._nothing
        self._gates[phase.value, captured, reason] += 1
        graph = "captured" if captured else "eager"
        return _range(format_annotation("phase", phase.value, requests=requests, rows=rows, graph=graph))

    def span(self, name: str) -> AbstractContextManager[object]:
        if self.spans is not None:
            return self.spans.span(name)
        return _range(format_annotation("span", name)) if self.annotate else self._nothing

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


def _range(name: str) -> AbstractContextManager[object]:
    from torch.profiler import record_function

    return record_function(name)
