"""One forward pass's input: rows are query tokens, grouped by request, every length known on the host."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from dsv4_engine.phase import Phase


@dataclass(frozen=True, kw_only=True)
class ForwardBatch:
    """T query rows of B requests, request by request, positions ascending.

    input_ids, positions: (T,) int64 on the device. req_slots: (B,) int64, cache slot of each request.
    seq_lens: (B,) int64, length of each request *after* this step's rows. extend_lens: (B,) int64, rows of each.
    num_tokens = T = sum of extend_lens, exact. The *_host tuples mirror the tensors, so that nothing is read back.
    """

    phase: Phase
    input_ids: torch.Tensor
    positions: torch.Tensor
    req_slots: torch.Tensor
    seq_lens: torch.Tensor
    extend_lens: torch.Tensor
    num_tokens: int
    seq_lens_host: tuple[int, ...]
    extend_lens_host: tuple[int, ...]

    @property
    def num_requests(self) -> int:
        return len(self.seq_lens_host)
