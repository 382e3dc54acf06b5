"""Where a row lives in the caches: every address follows from slot and position, so a rejected draft needs no undo.

A ring keeps the last `ring` positions of each slot at `slot * ring + position % ring`. Rows of rejected drafts are
overwritten by the true rows of the same positions before any causal read can reach them, provided that a ring is large
enough and that a step reads all it needs before it writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dsv4_engine.config import CSA, SLIDING, ModelConfig


@dataclass(frozen=True, kw_only=True)
class CacheShape:
    """How much the caches hold: `max_requests` slots of `context_len` tokens each.

    num_draft_tokens: rows of one verify, that is drafts + 1; 1 without speculation.
    """

    max_requests: int
    context_len: int
    num_draft_tokens: int = 1

    def __post_init__(self) -> None:
        assert min(self.max_requests, self.context_len, self.num_draft_tokens) >= 1, self


def compressor_span(ratio: int) -> int:
    """Source tokens of one compressed entry: ratio-4 windows overlap with their predecessor, ratio-128 ones do not."""
    return 2 * ratio if ratio == CSA else ratio


@dataclass(frozen=True, kw_only=True)
class CacheLayout:
    """Rows per slot of each pool. Pools have one more row at the end, which takes every write that must not land.

    window, window_ring: attended positions and ring rows. entries, state_ring: by ratio, compressed entries and rows
    of compressor state. max_positions: positions that can be addressed, with room for one rejected draft window.
    """

    num_slots: int
    max_positions: int
    window: int
    window_ring: int
    entries: Mapping[int, int]
    state_ring: Mapping[int, int]

    @classmethod
    def plan(cls, config: ModelConfig, shape: CacheShape) -> CacheLayout:
        spare = shape.num_draft_tokens - 1
        ratios = sorted(set(config.compress_ratios) - {SLIDING})
        max_positions = shape.context_len + shape.num_draft_tokens
        # Rows that a context cannot fill are neither kept nor read: a window may be far longer than any request.
        window = min(config.sliding_window, max_positions)
        return cls(
            num_slots=shape.max_requests,
            max_positions=max_positions,
            window=window,
            window_ring=min(window + spare, max_positions),
            entries={ratio: max_positions // ratio + 1 for ratio in ratios},
            state_ring={ratio: _power_of_two(compressor_span(ratio) + spare) for ratio in ratios},
        )

    @property
    def window_trash(self) -> int:
        return self.num_slots * self.window_ring

    def entry_trash(self, ratio: int) -> int:
        return self.num_slots * self.entries[ratio]

    def state_trash(self, ratio: int) -> int:
        return self.num_slots * self.state_ring[ratio]


def _power_of_two(minimum: int) -> int:
    return 1 << (minimum - 1).bit_length()
