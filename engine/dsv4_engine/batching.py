"""Forward batches from plans: what the host knows is uploaded once a step, what it does not is taken from the relay.

Reading a length back from the device would stall the host behind all queued work, so tensors are only written here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch.nn import functional as F

from dsv4_engine.batch import ForwardBatch
from dsv4_engine.phase import Phase
from dsv4_engine.plan import Chunk, TailSave
from dsv4_engine.request import Request


def upload(values: Sequence[int] | Sequence[Sequence[int]], device: torch.device) -> torch.Tensor:
    """int64 on the device; on GPUs through pinned memory, which torch keeps until the copy is done."""
    host = torch.tensor(values, dtype=torch.int64, pin_memory=device.type == "cuda")
    return host.to(device, non_blocking=True)


def upload_floats(values: Sequence[Sequence[float]], device: torch.device) -> torch.Tensor:
    """float64 on the device, likewise."""
    host = torch.tensor(values, dtype=torch.float64, pin_memory=device.type == "cuda")
    return host.to(device, non_blocking=True)


def slot_of(request: Request) -> int:
    assert request.slot is not None, "only requests with a slot are computed"
    return request.slot


@dataclass(frozen=True, kw_only=True)
class ChunkRows:
    """batch: the chunks' rows. next_ids: (T,) the token after each row, 0 where it is still to be sampled.

    completing: the R requests whose prefill ends here. last_rows: (R,) their last rows. slots, ends: (R,) their slots
    and the tokens that they will have cached.
    """

    batch: ForwardBatch
    next_ids: torch.Tensor
    completing: tuple[Request, ...]
    last_rows: torch.Tensor
    slots: torch.Tensor
    ends: torch.Tensor


def chunk_rows(chunks: Sequence[Chunk], tail_saves: Sequence[TailSave], device: torch.device) -> ChunkRows:
    """Rows of all chunks, request by request, in two uploads and one for the requests that complete."""
    ids: list[int] = []
    next_ids: list[int] = []
    positions: list[int] = []
    last_rows: list[int] = []
    for chunk in chunks:
        tokens = chunk.request.tokens[chunk.start : chunk.end + 1][: chunk.request.prefill_len - chunk.start]
        ids += tokens[: chunk.length]
        next_ids += (*tokens[1:], 0)[: chunk.length]
        positions += range(chunk.start, chunk.end)
        if chunk.completes:
            last_rows.append(len(ids) - 1)
    completing = [chunk for chunk in chunks if chunk.completes]
    rows = upload((ids, next_ids, positions), device)
    lens_host, ends_host = tuple(chunk.length for chunk in chunks), tuple(chunk.end for chunk in chunks)
    per_request = upload(([slot_of(chunk.request) for chunk in chunks], ends_host, lens_host), device)
    last = upload(
        (last_rows, [slot_of(chunk.request) for chunk in completing], [chunk.end for chunk in completing]), device
    )
    slots = {slot_of(chunk.request) for chunk in chunks}
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
        tail_saves=tuple(save for save in tail_saves if save.slot in slots),
    )
    return ChunkRows(
        batch=batch,
        next_ids=rows[1],
        completing=tuple(chunk.request for chunk in completing),
        last_rows=last[0],
        slots=last[1],
        ends=last[2],
    )


def padding_row(device: torch.device) -> ChunkRows:
    """One row of the padding slot, for a replica that has no prompt while another has."""
    none = torch.empty(0, dtype=torch.int64, device=device)
    row = torch.zeros(1, 1, dtype=torch.int64, device=device)
    return ChunkRows(
        batch=DecodeState.padding(1, device).window(Phase.PREFILL, row),
        next_ids=row[0],
        completing=(),
        last_rows=none,
        slots=none,
        ends=none,
    )


@dataclass(frozen=True, kw_only=True)
class DecodeState:
    """Where B running requests stand, by the device. slots, starts, newest: (B,) int64.

    starts: tokens cached, which is the position of the newest token. newest: that token. max_start: host bound of
    starts. starts_host: the same as starts, where the host knows them. peer_requests: most running requests of any
    data-parallel replica; None where experts are not shared.
    """

    slots: torch.Tensor
    starts: torch.Tensor
    newest: torch.Tensor
    max_start: int
    starts_host: tuple[int, ...] | None
    peer_requests: int | None = None

    @property
    def num_requests(self) -> int:
        return len(self.slots)

    def padded(self, requests: int, *, peer_requests: int | None = None) -> DecodeState:
        """With padding requests at the end: empty ones in slot 0, so that a window of n rows has a length of n."""
        missing = requests - self.num_requests
        if missing == 0:
            return replace(self, peer_requests=peer_requests)
        return replace(
            self,
            peer_requests=peer_requests,
            slots=F.pad(self.slots, (0, missing)),
            starts=F.pad(self.starts, (0, missing)),
            newest=F.pad(self.newest, (0, missing)),
            starts_host=None if self.starts_host is None else (*self.starts_host, *[0] * missing),
        )

    @classmethod
    def padding(cls, requests: int, device: torch.device, *, peer_requests: int | None = None) -> DecodeState:
        """Padding requests alone."""
        zeros = torch.zeros(requests, dtype=torch.int64, device=device)
        return cls(
            slots=zeros,
            starts=zeros,
            newest=zeros,
            max_start=0,
            starts_host=(0,) * requests,
            peer_requests=peer_requests,
        )

    def positions(self, width: int, *, offset: int = 0) -> torch.Tensor:
        """(B * width,) of the rows of `window`."""
        first = self.starts + offset
        return (first[:, None] + torch.arange(width, device=first.device)).reshape(-1)

    def window(
        self, phase: Phase, ids: torch.Tensor, *, offset: int = 0, max_seq_len: int | None = None
    ) -> ForwardBatch:
        """A batch of `ids` (B, width), request b's row i at position starts[b] + offset + i.

        max_seq_len: the bound that a captured graph was made for; None takes that of the batch.
        """
        requests, width = ids.shape
        first = self.starts + offset
        return ForwardBatch(
            phase=phase,
            input_ids=ids.reshape(-1),
            positions=self.positions(width, offset=offset),
            req_slots=self.slots,
            seq_lens=first + width,
            extend_lens=torch.full_like(first, width),
            num_tokens=requests * width,
            extend_lens_host=(width,) * requests,
            seq_lens_host=None
            if self.starts_host is None
            else tuple(start + offset + width for start in self.starts_host),
            max_seq_len=self.max_start + offset + width if max_seq_len is None else max_seq_len,
            peer_rows=None if self.peer_requests is None else self.peer_requests * width,
        )


def joined(chunks: ForwardBatch, windows: ForwardBatch) -> ForwardBatch:
    """A mixed step: the chunks' rows, then the running requests' windows."""
    hosts = chunks.seq_lens_host, windows.seq_lens_host
    return ForwardBatch(
        phase=Phase.PREFILL,
        input_ids=torch.cat((chunks.input_ids, windows.input_ids)),
        positions=torch.cat((chunks.positions, windows.positions)),
        req_slots=torch.cat((chunks.req_slots, windows.req_slots)),
        seq_lens=torch.cat((chunks.seq_lens, windows.seq_lens)),
        extend_lens=torch.cat((chunks.extend_lens, windows.extend_lens)),
        num_tokens=chunks.num_tokens + windows.num_tokens,
        extend_lens_host=chunks.extend_lens_host + windows.extend_lens_host,
        seq_lens_host=None if hosts[0] is None or hosts[1] is None else hosts[0] + hosts[1],
        max_seq_len=max(chunks.max_seq_len, windows.max_seq_len),
        tail_saves=chunks.tail_saves,
    )
