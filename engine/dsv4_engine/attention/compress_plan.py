"""Which compression windows a step completes, for any chunking and any batch, without asking the device how many.

The plan proper, `plan_c`, is a small table. Two ways make it: tensor operations on the device, or Python on the host
from the lengths that it mirrors, uploaded through staging. All addresses follow from it on the device.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass

import torch

from dsv4_engine.attention.core import DSV4AttnMetadata
from dsv4_engine.attention.rows import RowMeta, kept
from dsv4_engine.batch import ForwardBatch
from dsv4_engine.cache.layout import CacheLayout, compressor_span
from dsv4_engine.cache.staging import StagingRing
from dsv4_engine.config import CSA, HCA
from dsv4_engine.errors import EngineError

PLAN_SIDES = ("device", "host")


@dataclass(frozen=True, kw_only=True)
class CompressPlan:
    """One compression ratio's reads and writes; C = T // ratio + B planned entries, S source tokens of each.

    plan_c: (4, C) int64: request, window, row that completes it, and 1, or four zeros in entries that no window fills.
    Sources, (C, S): row `flat_index` of this step where `in_chunk`, else row `ring_index` of the state pool; `valid`
    where the position exists. entry_pos: (C,) position of an entry's first token. out_loc: (C,) its compressed row, the
    padding page's for unfilled entries. state_phase, state_write: (T,) position mod ratio and row in the state pool of
    each token, the padding slot's where the ring does not keep it.
    """

    plan_c: torch.Tensor
    in_chunk: torch.Tensor
    flat_index: torch.Tensor
    ring_index: torch.Tensor
    valid: torch.Tensor
    entry_pos: torch.Tensor
    out_loc: torch.Tensor
    state_phase: torch.Tensor
    state_write: torch.Tensor


@dataclass(frozen=True, kw_only=True)
class StagedPlan:
    """plan_c as the device got it, and the checksum of what the host had made (`cache.staging.checksum_of`)."""

    ratio: int
    plan_c: torch.Tensor
    checksum: int


class CompressPlanner:
    """Makes plans on the side that was asked for. fallbacks: plans made on the device instead, by reason.

    staged: the last uploads, kept only where staging is made faulty on purpose, for whoever compares checksums.
    """

    def __init__(self, side: str, staging: StagingRing) -> None:
        if side not in PLAN_SIDES:
            raise EngineError(f"plan_on is {side!r}", hint=f"choose {' or '.join(PLAN_SIDES)}")
        self._side, self._staging = side, staging
        self.fallbacks: Counter[str] = Counter()
        self.staged: deque[StagedPlan] = deque(maxlen=16)

    def plan(
        self, batch: ForwardBatch, rows: RowMeta, core: DSV4AttnMetadata, layout: CacheLayout, ratios: Collection[int]
    ) -> Mapping[int, CompressPlan]:
        """Plans for the windows that the batch completes, by ratio. All are staged before the first is used."""
        tables = self._on_host(batch, ratios) if self._side == "host" else None
        if tables is None:
            tables = {ratio: device_plan(batch, ratio) for ratio in ratios}
        out_locs = {CSA: core.c4_out_loc, HCA: core.c128_out_loc}
        try:
            return {ratio: _addresses(tables[ratio], batch, rows, out_locs[ratio], ratio, layout) for ratio in ratios}
        except IndexError as error:
            if not self._staging.faults.freed_staging:
                raise
            raise EngineError(
                f"a compress plan names rows that the step does not have: {error}",
                hint="its staging buffer was overwritten before the copy, as the fault freed_staging makes it",
            ) from error

    def _on_host(self, batch: ForwardBatch, ratios: Collection[int]) -> Mapping[int, torch.Tensor] | None:
        if batch.seq_lens_host is None:
            self.fallbacks["the host does not know the batch's lengths"] += len(ratios)
            return None
        lens = batch.seq_lens_host, batch.extend_lens_host
        uploads = {ratio: self._staging.upload(host_plan(*lens, ratio)) for ratio in ratios}
        tables = {ratio: upload.tensor() for ratio, upload in uploads.items()}
        if self._staging.faults.freed_staging:
            self.staged += [
                StagedPlan(ratio=ratio, plan_c=table, checksum=uploads[ratio].checksum)
                for ratio, table in tables.items()
            ]
        return tables


def device_plan(batch: ForwardBatch, ratio: int) -> torch.Tensor:
    """plan_c by tensor operations: planned entry i belongs to the first request whose windows, summed up, exceed i."""
    chunk_start = batch.seq_lens - batch.extend_lens
    first_window = chunk_start // ratio
    completed = batch.seq_lens // ratio - first_window
    ends = torch.cumsum(completed, 0)
    # Where a request's rows would begin if its first one had position 0.
    origin = torch.cumsum(batch.extend_lens, 0) - batch.seq_lens
    entry = torch.arange(batch.num_tokens // ratio + batch.num_requests, device=chunk_start.device)
    request = torch.searchsorted(ends, entry, right=True).clamp_(max=batch.num_requests - 1)
    window = entry + (first_window - ends + completed)[request]
    row = origin[request] + (window + 1) * ratio - 1
    return torch.stack((request, window, row, torch.ones_like(row))) * (entry < ends[-1])


def host_plan(seq_lens: tuple[int, ...], extend_lens: tuple[int, ...], ratio: int) -> list[list[int]]:
    """plan_c from the host's mirrors of (B,) lengths."""
    plan: list[list[int]] = [[], [], []]
    end_row = 0
    for request, (end, count) in enumerate(zip(seq_lens, extend_lens, strict=True)):
        end_row += count
        windows = range((end - count) // ratio, end // ratio)
        plan[0] += [request] * len(windows)
        plan[1] += windows
        plan[2] += [end_row - end + (window + 1) * ratio - 1 for window in windows]
    filled, planned = len(plan[0]), sum(extend_lens) // ratio + len(extend_lens)
    return [values + [0] * (planned - filled) for values in (*plan, [1] * filled)]


def _addresses(
    plan_c: torch.Tensor,
    batch: ForwardBatch,
    rows: RowMeta,
    out_loc: torch.Tensor | None,
    ratio: int,
    layout: CacheLayout,
) -> CompressPlan:
    assert out_loc is not None
    request, window, row, fills = plan_c
    positions, ring = batch.positions, layout.state_ring[ratio]
    back = torch.arange(1 - compressor_span(ratio), 1, device=positions.device)
    source = ((window + 1) * ratio - 1)[:, None] + back
    chunk_start = (batch.seq_lens - batch.extend_lens)[request]
    return CompressPlan(
        plan_c=plan_c,
        in_chunk=source >= chunk_start[:, None],
        flat_index=(row[:, None] + back).clamp_(min=0),
        ring_index=(batch.req_slots[request] * ring)[:, None] + source % ring,
        valid=source >= 0,
        entry_pos=window * ratio,
        out_loc=out_loc[row] * fills,
        state_phase=positions % ratio,
        state_write=torch.where(kept(positions, rows, ring), rows.slot * ring + positions % ring, 0),
    )
