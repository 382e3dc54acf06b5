"""Query rows in blocks, where a step gathers keys for each row and a long prefill has many."""

from __future__ import annotations

_BLOCK_ELEMENTS = 1 << 23
"""Gathered key elements held at once (32 MiB in float32): the bound on a long prefill's memory."""


def row_blocks(num_rows: int, elements_per_row: int) -> list[slice]:
    """Slices of query rows, each small enough that its gathered keys stay within the memory bound."""
    size = max(1, _BLOCK_ELEMENTS // max(1, elements_per_row))
    return [slice(start, min(start + size, num_rows)) for start in range(0, num_rows, size)]
