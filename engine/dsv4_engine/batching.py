"""Forward batches from plans: every length is known on the host, and each step uploads its integers once.

Reading a length back from the device would stall the host behind all queued work, so tensors are only written here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from dsv4_engine.batch import ForwardBatch
from dsv4_engine.phase import Phase
from dsv4_engine.plan import Chunk
from dsv4_engine.request import Request


def upload(values: Sequence[int] | Sequence[Sequence[int]], device: torch.device) -> torch.Tensor:
    """int64 on the device; on GPUs through pinned memory, which torch keeps until the copy is done."""
    host = torch.tensor(values, dtype=torch.int64, pin_memory=device.type == "cuda")
    return host.to(device, non_blocking=True)


@dataclass(frozen=True, kw_only=True)
class PrefillInputs:
    """batch: the chunks' rows. next_ids: (T,) the token after each row, 0 where it is still to be sampled.

    last_rows: (R,) last rows of the R chunks that complete their prompt. last_slots: (R,) their requests' slots.
    """

    batch: ForwardBatch
    next_ids: torch.Tensor
    last_rows: torch.Tensor
    last_slots: torch.Tensor


def prefill_inputs(chunks: Sequence[Chunk], device: torch.device) -> PrefillInputs:
    """Rows of all chunks, request by request."""
    ids: list[int] = []
    next_ids: list[int] = []
    positions: list[int] = []
    last_rows: list[int] = []
    last_slots: list[int] = []
    for chunk in chunks:
        prompt, end = chunk.request.tokens, chunk.end
        ids += prompt[chunk.start : end]
        next_ids += (*prompt[chunk.start + 1 : end + 1], 0)[: chunk.length]
        positions += range(chunk.start, end)
        if chunk.completes:
            last_rows.append(len(ids) - 1)
            last_slots.append(_slot(chunk.request))
    rows = upload((ids, next_ids, positions), device)
    lens_host = tuple(chunk.length for chunk in chunks)
    ends_host = tuple(chunk.start + chunk.length for chunk in chunks)
    per_request = upload(([_slot(chunk.request) for chunk in chunks], ends_host, lens_host), device)
    last = upload((last_rows, last_slots), device)
    batch = ForwardBatch(
        phase=Phase.PREFILL,
        input_ids=rows[0],
        positions=rows[2],
        req_slots=per_request[0],
        seq_lens=per_request[1],
        extend_lens=per_request[2],
        num_tokens=len(ids),
        extend_lens_host=lens_host,
        seq_lens_host=ends_host,
        max_seq_len=max(ends_host),
    )
    return PrefillInputs(batch=batch, next_ids=rows[1], last_rows=last[0], last_slots=last[1])


@dataclass(frozen=True, kw_only=True)
class DecodeInputs:
    """Where B running requests stand. slots, starts, newest: (B,) int64 on the device.

    starts: the position of the newest token, which is not in the cache yet. newest: that token.
    """

    slots: torch.Tensor
    starts: torch.Tensor
    newest: torch.Tensor
    starts_host: tuple[int, ...]

    @classmethod
    def of(cls, requests: Sequence[Request], device: torch.device) -> DecodeInputs:
        starts = tuple(request.cached_len for request in requests)
        newest = [request.output[-1] for request in requests]
        uploaded = upload(([_slot(request) for request in requests], starts, newest), device)
        return cls(slots=uploaded[0], starts=uploaded[1], newest=uploaded[2], starts_host=starts)

    def window(self, phase: Phase, ids: torch.Tensor, *, offset: int = 0) -> ForwardBatch:
        """A batch of `ids` (B, width), request b's row i at position starts[b] + offset + i."""
        requests, width = ids.shape
        first = self.starts + offset
        return ForwardBatch(
            phase=phase,
            input_ids=ids.reshape(-1),
            positions=(first[:, None] + torch.arange(width, device=ids.device)).reshape(-1),
            req_slots=self.slots,
            seq_lens=first + width,
            extend_lens=torch.full_like(first, width),
            num_tokens=requests * width,
            extend_lens_host=(width,) * requests,
            seq_lens_host=tuple(start + offset + width for start in self.starts_host),
            max_seq_len=max(self.starts_host) + offset + width,
        )


def _slot(request: Request) -> int:
    assert request.slot is not None, "only requests with a slot are computed"
    return request.slot
