"""How many bytes the caches take, pool by pool, and how many pages fit into a budget.

The figures are those of the tensors that `pools` and `request_table` allocate, to the byte.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from dsv4_engine.cache.layout import CacheLayout, CacheShape, carried_state
from dsv4_engine.config import CSA, SLIDING, ModelConfig
from dsv4_engine.errors import EngineError

_STATE_BYTES = 4
_TABLE_BYTES = 4
POOLS = ("swa", "compressed", "indexer", "state", "mtp", "tails", "table")
"""Window rings, compressed rows, indexer keys, compressor state, the MTP layer's rings, snapshots, request table."""


@dataclass(frozen=True, kw_only=True)
class PoolSize:
    """rows: of all layers together. bytes: on each rank."""

    name: str
    rows: int
    bytes: int


@dataclass(frozen=True, kw_only=True)
class CachePlan:
    """What the caches of one rank take. pools: in the order of POOLS, those of no size included."""

    layout: CacheLayout
    pools: tuple[PoolSize, ...]

    @property
    def num_bytes(self) -> int:
        return sum(pool.bytes for pool in self.pools)

    def table(self) -> str:
        """Lines of name, rows and bytes, with a total."""
        layout = self.layout
        lines = [f"{pool.name:<11}{pool.rows:>14,} rows {pool.bytes:>18,} bytes" for pool in self.pools]
        tokens = (layout.num_pages - 1) * layout.page_size
        return "\n".join(
            (
                *lines,
                f"{'total':<11}{'':>14}      {self.num_bytes:>18,} bytes",
                f"{layout.num_slots - 1:,} requests, {layout.num_pages - 1:,} pages of {layout.page_size} tokens "
                f"({tokens:,} tokens), {max(layout.num_tails - 1, 0):,} tails",
            )
        )


def cache_plan(config: ModelConfig, layout: CacheLayout, ratios: Sequence[int], *, dtype: torch.dtype) -> CachePlan:
    """Sizes for layers of the given `ratios`; one beyond the main layers is the MTP layer's."""
    rows: Counter[str] = Counter()
    size: Counter[str] = Counter()

    def add(name: str, count: int, width: int, itemsize: int) -> None:
        rows[name] += count
        size[name] += count * width * itemsize

    key, dim, index_dim = dtype.itemsize, config.head_dim, config.index_head_dim
    for index, ratio in enumerate(ratios):
        add("swa" if index < config.num_hidden_layers else "mtp", layout.swa_pages, dim, key)
        add("tails", layout.num_tails * layout.window, dim, key)
        if ratio == SLIDING:
            continue
        width = 2 * dim if ratio == CSA else dim
        carried = layout.num_tails * carried_state(ratio)
        add("compressed", layout.compressed_rows(ratio), dim, key)
        add("state", layout.state_rows(ratio), 2 * width, _STATE_BYTES)
        add("tails", carried, 2 * width, _STATE_BYTES)
        if ratio == CSA:
            add("indexer", layout.compressed_rows(ratio), index_dim, key)
            add("state", layout.state_rows(ratio), 4 * index_dim, _STATE_BYTES)
            add("tails", carried, 4 * index_dim, _STATE_BYTES)
    add("table", layout.num_slots, layout.pages_per_request, _TABLE_BYTES)
    return CachePlan(
        layout=layout, pools=tuple(PoolSize(name=name, rows=rows[name], bytes=size[name]) for name in POOLS)
    )


def fit_shape(
    config: ModelConfig,
    shape: CacheShape,
    ratios: Sequence[int],
    *,
    dtype: torch.dtype,
    budget: int,
    pages_per_tail: int = 0,
    most_pages: int | None = None,
) -> CacheShape:
    """`shape` with as many pages as `budget` bytes hold beside the slots' rings and the table.

    pages_per_tail: one tail is kept for so many pages, rounded down; 0 keeps `shape.num_tails`. most_pages: no more
    than this. EngineError where not even one request of `context_len` tokens fits.
    """

    def sized(pages: int) -> CacheShape:
        tails = pages // pages_per_tail if pages_per_tail else shape.num_tails
        return replace(shape, num_pages=pages, num_tails=tails)

    def needed(pages: int) -> int:
        return cache_plan(config, CacheLayout.plan(config, sized(pages)), ratios, dtype=dtype).num_bytes

    least = shape.pages_per_request
    if needed(least) > budget:
        raise EngineError(
            f"a cache budget of {gib(budget)} does not hold one request of {shape.context_len:,} tokens beside the "
            f"rings of {shape.max_requests:,}: that takes {gib(needed(least))}",
            hint="lower max_requests or context_len, or raise the budget",
        )
    if most_pages is not None and most_pages <= least:
        return sized(least)
    # Where a page costs nothing, every slot still needs pages to be scheduled; so many tails make one cost something.
    enough = max(shape.max_requests * least, pages_per_tail)
    low, high = least, most_pages or _unbounded(needed, enough, budget)
    while low < high:  # the last page count that fits; needed() grows with the pages
        middle = (low + high + 1) // 2
        low, high = (middle, high) if needed(middle) <= budget else (low, middle - 1)
    return sized(low)


def _unbounded(needed: Callable[[int], int], pages: int, budget: int) -> int:
    """From `pages` on, a page count that does not fit, or the largest that a table can name."""
    while pages < 2**31 - 1 and needed(pages) <= budget:
        grown = min(2 * pages, 2**31 - 1)
        if needed(grown) == needed(pages):
            return pages  # no layer has pages
        pages = grown
    return pages


def memory_bytes(device: torch.device) -> int:
    """All of a host's memory, since files cached in it make room, or what is free on a GPU, torch's own reserve too."""
    if device.type == "cuda":
        reserve = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(torch.cuda.mem_get_info(device)[0] + reserve)
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def fraction_of_memory(fraction: float, device: torch.device) -> int:
    """Budget in bytes; EngineError unless 0 < fraction <= 1."""
    if not 0 < fraction <= 1:
        raise EngineError(f"the cache's share of memory is {fraction}", hint="choose more than 0 and at most 1")
    return int(fraction * memory_bytes(device))


def gib(count: int) -> str:
    return f"{count:,} bytes ({count / 2**30:,.1f} GiB)"
