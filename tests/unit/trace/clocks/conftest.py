"""Ranks made of numbers: known clocks, known lateness, collectives whose ends differ by known noise."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest

from dsv4prof.trace.clocks.collect import COLLECTIVE, RankCollectives

BASE = 1_767_189_312_000_000_000


class Made(NamedTuple):
    ranks: list[RankCollectives]
    offsets: list[float]  # ns at the first event of all
    drifts: list[float]  # ratio


def make(
    ranks: int = 8,
    count: int = 200,
    *,
    nodes: int = 2,
    noise_us: float = 0.3,
    late_us: dict[int, float] | None = None,
    gap_us: float = 2000.0,
    period: int = 0,
    seed: int = 0,
    drop: dict[int, list[int]] | None = None,
    keep: dict[int, slice] | None = None,
    seq: bool = False,
    groups: list[str] | None = None,
    drift_ppm: float = 20.0,
    offset_ms: float = 8.0,
) -> Made:
    """`period` repeats the gaps every so many collectives; `groups` gives each rank's group and so its own ends."""
    g = np.random.default_rng(seed)
    node_of = [rank * nodes // ranks for rank in range(ranks)]
    node_offset = [0.0, *g.uniform(-offset_ms * 1e6, offset_ms * 1e6, nodes - 1)]
    node_drift = [0.0, *g.uniform(-drift_ppm * 1e-6, drift_ppm * 1e-6, nodes - 1)]
    names = groups or [""] * ranks
    true_ends = {}
    for name in dict.fromkeys(names):
        gaps = g.gamma(4.0, gap_us * 1e3 / 4.0, period or count) + 20e3
        true_ends[name] = np.cumsum(np.tile(gaps, count // len(gaps) + 1)[:count])
    made, offsets = [], []
    for rank in range(ranks):
        ends = true_ends[names[rank]]
        offset = node_offset[node_of[rank]] + (g.uniform(-3e3, 3e3) if rank else 0.0)
        late = g.uniform(0.0, 10e3, count) + (late_us or {}).get(rank, 0.0) * 1e3 * g.uniform(0.6, 1.0, count)
        longest = 1000e3
        end = ends + g.uniform(-noise_us, noise_us, count) * 1e3
        start = np.minimum(ends - longest + late, end - 5e3)
        rows = np.zeros(count, dtype=COLLECTIVE)
        for name, at in (("start", start), ("end", end)):
            rows[name] = np.rint(at * (1.0 + node_drift[node_of[rank]]) + offset).astype(np.int64) + BASE
        rows["seq"] = np.arange(count) + 100 if seq else -1
        rows["ordinal"] = np.arange(count)
        rows["key"] = np.arange(count) % 5 // 2
        kept = np.ones(count, dtype=bool)
        kept[(drop or {}).get(rank, [])] = False
        rows = rows[kept][(keep or {}).get(rank, slice(None))]
        first = int(BASE + offset) if rank not in (keep or {}) else int(rows["start"].min())
        made.append(RankCollectives(rank, None, first, ["a", "b", "c"], [names[rank]], rows))
        offsets.append(offset)
    return Made(made, offsets, [node_drift[node] for node in node_of])


@pytest.fixture
def make_ranks() -> Callable[..., Made]:
    return make
