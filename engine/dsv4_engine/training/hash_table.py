"""Which experts a hash layer gives to each token id."""

from __future__ import annotations

import heapq

import numpy as np
import numpy.typing as npt


def balanced_table(counts: npt.NDArray[np.int64], *, experts: int, chosen: int) -> npt.NDArray[np.int64]:
    """(V, chosen) distinct experts a token, dealt out from the most frequent token on to those with the least to do.

    counts: (V,) how often each token occurs. Frequencies of bytes differ by orders, so a random table would leave some
    experts with a tenth of the work of others.
    """
    table = np.zeros((len(counts), chosen), dtype=np.int64)
    load = [(0, expert) for expert in range(experts)]
    for token in np.argsort(-counts, kind="stable"):
        least = [heapq.heappop(load) for _ in range(chosen)]
        table[token] = [expert for _, expert in least]
        for carried, expert in least:
            # At least one, so that tokens that never occur are spread as well.
            heapq.heappush(load, (carried + max(int(counts[token]), 1), expert))
    return table
