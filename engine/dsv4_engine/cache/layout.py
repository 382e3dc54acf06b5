"""Where a row lives in the caches: every address follows from slot or page and position, so drafts need no undo.

A ring keeps the last `ring` positions of a slot at `slot * ring + position % ring`. Compressed rows lie in pages of
`page_size` tokens, which requests may share. Rows of rejected drafts are overwritten by the true rows of the same
positions before any causal read can reach them, provided that a ring is large enough and that a step reads what it
needs before it writes over it. Slot 0 and page 0 belong to nobody: they take every write that must not land.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from dsv4_engine.config import CSA, SLIDING, ModelConfig
from dsv4_engine.errors import EngineError


@dataclass(frozen=True, kw_only=True)
class CacheShape:
    """How much the caches hold: `max_requests` requests of up to `context_len` tokens each.

    num_draft_tokens: rows of one verify, that is drafts + 1; 1 without speculation. page_size: tokens a page.
    num_pages: pages for compressed rows, padding's aside; None takes enough for every request at `context_len`.
    num_tails: snapshots that prefixes can be continued from; 0 keeps none.
    """

    max_requests: int
    context_len: int
    num_draft_tokens: int = 1
    page_size: int = 256
    num_pages: int | None = None
    num_tails: int = 0

    def __post_init__(self) -> None:
        for name, least in (
            ("max_requests", 1), ("context_len", 1), ("num_draft_tokens", 1),
            ("page_size", 1), ("num_pages", 1), ("num_tails", 0),
        ):  # fmt: skip
            value = getattr(self, name)
            if value is not None and value < least:
                raise EngineError(f"{name} is {value}", hint=f"choose at least {least}")

    @property
    def max_positions(self) -> int:
        """Positions that a request may touch: its context, a rejected draft window, and one more overlapped step."""
        return self.context_len + 2 * self.num_draft_tokens

    @property
    def pages_per_request(self) -> int:
        return -(-self.max_positions // self.page_size)


def compressor_span(ratio: int) -> int:
    """Source tokens of one compressed entry: ratio-4 windows overlap with their predecessor, ratio-128 ones do not."""
    return 2 * ratio if ratio == CSA else ratio


def carried_state(ratio: int) -> int:
    """State rows before a window's first token that the window needs: what a prefix of whole windows hands on."""
    return compressor_span(ratio) - ratio


@dataclass(frozen=True, kw_only=True)
class CacheLayout:
    """Sizes of all pools. Slots, pages and tails are counted with padding's, which is number 0 of each.

    max_positions: positions that can be addressed; pages_per_request columns of the request table cover them.
    window, window_ring: attended positions and ring rows a slot. ratios: compression ratios of the model, ascending.
    state_ring: by ratio, rows of compressor state a slot. num_tails: 0 where no snapshots are kept.
    """

    num_slots: int
    num_pages: int
    num_tails: int
    page_size: int
    pages_per_request: int
    max_positions: int
    window: int
    window_ring: int
    ratios: tuple[int, ...]
    state_ring: Mapping[int, int]

    @classmethod
    def plan(cls, config: ModelConfig, shape: CacheShape) -> CacheLayout:
        """EngineError where a page would cut a compression window."""
        spare = shape.num_draft_tokens - 1
        ratios = tuple(sorted(set(config.compress_ratios) - {SLIDING}))
        unit = math.lcm(*ratios)
        if shape.page_size % unit:
            raise EngineError(
                f"page_size is {shape.page_size}, and a page must hold whole compression windows",
                hint=f"choose a multiple of {unit}, the default is 256",
            )
        per_request = shape.pages_per_request
        # Rows that a context cannot fill are neither kept nor read: a window may be far longer than any request.
        window = min(config.sliding_window, shape.max_positions)
        return cls(
            num_slots=shape.max_requests + 1,
            num_pages=(shape.max_requests * per_request if shape.num_pages is None else shape.num_pages) + 1,
            num_tails=shape.num_tails + 1 if shape.num_tails else 0,
            page_size=shape.page_size,
            pages_per_request=per_request,
            max_positions=shape.max_positions,
            window=window,
            window_ring=min(window + spare, shape.max_positions),
            ratios=ratios,
            state_ring={ratio: _power_of_two(compressor_span(ratio) + spare) for ratio in ratios},
        )

    @property
    def swa_pages(self) -> int:
        """Rows of a unified pool that hold the slots' rings; compressed rows follow. (SGLang's name; they are rows.)"""
        return self.num_slots * self.window_ring

    @property
    def longest_ring(self) -> int:
        return max((self.window_ring, *self.state_ring.values()))

    def rows_per_page(self, ratio: int) -> int:
        """Compressed rows of a page; none of a layer without compression."""
        return self.page_size // ratio if ratio else 0

    def compressed_rows(self, ratio: int) -> int:
        return self.num_pages * self.rows_per_page(ratio)

    def state_rows(self, ratio: int) -> int:
        return self.num_slots * self.state_ring[ratio]


def _power_of_two(minimum: int) -> int:
    return 1 << (minimum - 1).bit_length()
