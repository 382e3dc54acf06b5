"""What aligning costs: CPU seconds for R ranks of N collectives, against sorting as many floats in the same run.

    python tests/bench/bench_clocks.py [COLLECTIVES] [RANKS ...]

Made ranks on machines of eight with clocks of their own. Twice: all ranks show the same collectives, and every third
rank lacks one, so that patterns must be compared. The last line of each gives the growth per rank.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from functools import partial

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from dsv4prof.trace.clocks import Align, RankCollectives, align
from dsv4prof.trace.clocks.collect import COLLECTIVE

BASE = 1_767_189_312_000_000_000


def made(ranks: int, count: int, *, lacking: bool) -> list[RankCollectives]:
    """Ranks whose collectives end 60 us apart on the average, with 1.5 us of noise; rank 5 comes late."""
    g = np.random.default_rng(0)
    ends = np.cumsum(g.exponential(40e3, count) + 20e3)
    result = []
    for rank in range(ranks):
        node = rank // 8
        drift, offset = (node % 5 - 2) * 8e-6, node % 7 * 1.1e6 + g.uniform(-3e3, 3e3)
        rows = np.zeros(count, dtype=COLLECTIVE)
        rows["end"] = np.rint(ends * (1 + drift) + offset + g.uniform(-1500, 1500, count)).astype(np.int64) + BASE
        late = g.uniform(0, 10e3, count) + (15e3 if rank == 5 else 0)
        rows["start"] = rows["end"] - 40_000 + late.astype(np.int64)
        rows["seq"], rows["ordinal"], rows["key"] = -1, np.arange(count), np.arange(count) % 4
        kept = np.delete(rows, (7 + rank) % count) if lacking and rank % 3 == 1 else rows
        result.append(RankCollectives(rank, None, int(rows["start"][0]), ["a", "b", "c", "d"], [""], kept))
    return result


def cpu_seconds(call: Callable[[], object]) -> float:
    began = time.process_time()
    call()
    return time.process_time() - began


def main(count: int, sizes: list[int]) -> None:
    for lacking in (False, True):
        print(f"{count:,} collectives a rank, {'every third rank lacks one' if lacking else 'none lacking'}")
        for ranks in sizes:
            given = made(ranks, count, lacking=lacking)
            took = cpu_seconds(partial(align, given, Align.AUTO))
            floats = np.random.default_rng(1).random(ranks * count)
            sort = min(cpu_seconds(partial(np.sort, floats)) for _ in range(3))
            each = 1e6 * took / (ranks * count)
            ratio = took / max(sort, 1e-9)
            print(f"  {ranks:5} ranks: {took:7.2f} CPU s, {each:5.2f} us a collective, {ratio:7.0f} x a sort")


if __name__ == "__main__":
    numbers = [int(one) for one in sys.argv[1:]]
    main(numbers[0] if numbers else 2000, numbers[1:] or [1, 4, 16, 64, 256])
