"""Forward batches of whole rows, made from host values: a check has no scheduler and waits for nothing."""

# dsv4prof: allow-file[DSV108] compares results offline, never in a serving step
from __future__ import annotations

from collections.abc import Sequence

import torch

from dsv4_engine.batch import ForwardBatch
from dsv4_engine.phase import Phase


def rows_batch(
    slots: Sequence[int], starts: Sequence[int], ids: Sequence[Sequence[int]], phase: Phase, device: torch.device
) -> ForwardBatch:
    """Request b's tokens `ids[b]` at positions `starts[b]` and on, in cache slot `slots[b]`."""
    lens = tuple(map(len, ids))
    ends = tuple(start + count for start, count in zip(starts, lens, strict=True))

    def uploaded(values: Sequence[int]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.int64).to(device)

    return ForwardBatch(
        phase=phase,
        input_ids=uploaded([token for row in ids for token in row]),
        positions=uploaded([p for start, end in zip(starts, ends, strict=True) for p in range(start, end)]),
        req_slots=uploaded(slots),
        seq_lens=uploaded(ends),
        extend_lens=uploaded(lens),
        num_tokens=sum(lens),
        extend_lens_host=lens,
        seq_lens_host=ends,
        max_seq_len=max(ends),
    )
