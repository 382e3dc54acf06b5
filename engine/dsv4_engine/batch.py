"""The input of one forward pass, plain or speculative, prompt or decode: a flat list of query rows."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from dsv4_engine.phase import Phase
from dsv4_engine.plan import TailSave


@dataclass(frozen=True, kw_only=True)
class ForwardBatch:
    """T query rows of B requests, request by request, positions ascending.

    input_ids, positions: (T,) int64 on the device. req_slots: (B,) int64, cache slot of each request; slot 0 belongs
    to padding. seq_lens: (B,) int64, length of each request *after* this step's rows. extend_lens: (B,) int64,
    rows of each.
    num_tokens = T = sum of extend_lens, exact; extend_lens_host mirrors it. seq_lens_host mirrors seq_lens where the
    host knows them, else None; max_seq_len bounds them in any case, so that no size is read back.
    tail_saves: prefixes that end within these rows and are to be kept; empty but in prefill.
    peer_rows: most rows that any data-parallel replica computes in this forward; None where experts are not shared.
    """

    phase: Phase
    input_ids: torch.Tensor
    positions: torch.Tensor
    req_slots: torch.Tensor
    seq_lens: torch.Tensor
    extend_lens: torch.Tensor
    num_tokens: int
    extend_lens_host: tuple[int, ...]
    seq_lens_host: tuple[int, ...] | None
    max_seq_len: int
    tail_saves: tuple[TailSave, ...] = ()
    peer_rows: int | None = None

    @property
    def num_requests(self) -> int:
        return len(self.extend_lens_host)
