"""How often each phase was captured or eager, why, and what the graphs cost."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from dsv4_engine.phase import Phase


@dataclass(frozen=True, kw_only=True)
class GraphMemory:
    """One captured graph: its phase, the requests it holds, and the bytes that capturing it took."""

    phase: Phase
    requests: int
    num_bytes: int


@dataclass(frozen=True, kw_only=True)
class GraphStats:
    """replays, eager: by phase. reasons: (phase, sentence, times) of each fallback. padded_requests: padding."""

    replays: dict[Phase, int]
    eager: dict[Phase, int]
    reasons: tuple[tuple[Phase, str, int], ...]
    padded_requests: int
    graphs: tuple[GraphMemory, ...]

    @property
    def num_bytes(self) -> int:
        return sum(graph.num_bytes for graph in self.graphs)


class GraphCounters:
    """Counts while the engine runs."""

    def __init__(self) -> None:
        self._replays: Counter[Phase] = Counter()
        self._reasons: Counter[tuple[Phase, str]] = Counter()
        self._padded = 0

    def replayed(self, phase: Phase, *, padded: int) -> None:
        self._replays[phase] += 1
        self._padded += padded

    def fell_back(self, phase: Phase, reason: str) -> None:
        self._reasons[phase, reason] += 1

    def stats(self, graphs: tuple[GraphMemory, ...]) -> GraphStats:
        eager: Counter[Phase] = Counter()
        for (phase, _), times in self._reasons.items():
            eager[phase] += times
        return GraphStats(
            replays=dict(self._replays),
            eager=dict(eager),
            reasons=tuple((phase, reason, times) for (phase, reason), times in self._reasons.items()),
            padded_requests=self._padded,
            graphs=graphs,
        )
