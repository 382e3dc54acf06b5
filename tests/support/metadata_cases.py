"""Random layouts, request tables and batches for tests of the metadata, and what a row is in them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from hypothesis import strategies as st

from dsv4_engine.attention.compress_plan import CompressPlanner
from dsv4_engine.attention.metadata import DSV4Metadata, MetadataContext, build_metadata
from dsv4_engine.batch import ForwardBatch
from dsv4_engine.cache.layout import CacheLayout
from dsv4_engine.cache.request_table import RequestTable
from dsv4_engine.cache.staging import NO_FAULTS, Faults, StagingRing
from dsv4_engine.hooks import NullHooks
from dsv4_engine.phase import Phase
from engine_batches import CPU, make_batch

SLOTS, POSITIONS, TOPK = 5, 600, 7


@st.composite
def layouts(draw, ratios=((4, 128), (4, 128), (4,), (128,), ())) -> CacheLayout:
    window, drafts, ratios = draw(st.integers(1, 40)), draw(st.integers(0, 5)), draw(st.sampled_from(ratios))
    page_size = draw(st.sampled_from((128, 256, 384)))
    pages = -(-POSITIONS // page_size)
    return CacheLayout(
        num_slots=SLOTS + 1,
        num_pages=SLOTS * pages + 1,
        num_tails=0,
        page_size=page_size,
        pages_per_request=pages,
        max_positions=POSITIONS,
        window=window,
        window_ring=window + drafts,
        ratios=ratios,
        state_ring={ratio: {4: 8, 128: 128}[ratio] + drafts for ratio in ratios},
    )


@st.composite
def batches(draw, phase: Phase | None = Phase.PREFILL) -> ForwardBatch:
    """Lengths and starts about the borders of windows, rings, compression windows and pages."""
    phase = phase or draw(st.sampled_from((Phase.PREFILL, Phase.DECODE, Phase.TARGET_VERIFY, Phase.DRAFT_EXTEND)))
    slots = draw(st.lists(st.integers(1, SLOTS), min_size=1, max_size=SLOTS, unique=True))
    width = 1 if phase is Phase.DECODE else draw(st.integers(1, 8))
    parts = []
    for slot in slots:
        length = width
        if phase is Phase.PREFILL:
            length = draw(st.one_of(st.integers(1, 6), st.sampled_from((127, 128, 129, 255, 256, 257))))
        edge = draw(st.sampled_from((0, 4, 32, 128, 256, 384, 512)))
        start = min(max(0, edge + draw(st.integers(-5, 5))), POSITIONS - length)
        parts.append((slot, start, torch.zeros(length, dtype=torch.int64)))
    known = draw(st.booleans())
    batch = make_batch(*parts, phase=phase, known=known)
    return replace(batch, max_seq_len=min(batch.max_seq_len + draw(st.integers(0, 9)), POSITIONS))


def make_context(
    layout: CacheLayout, *, exact: bool = True, plan_on: str = "device", faults: Faults = NO_FAULTS, seed: int = 0
) -> MetadataContext:
    """With pages dealt out in random order."""
    staging = StagingRing(CPU, faults=faults)
    table = RequestTable(layout, device=CPU, staging=staging)
    pages = random.Random(seed).sample(range(1, layout.num_pages), layout.num_pages - 1)
    table.pages[1:] = torch.tensor(pages, dtype=torch.int32).view(-1, layout.pages_per_request)
    return MetadataContext(
        layout=layout,
        table=table,
        planner=CompressPlanner(plan_on, staging),
        staging=staging,
        index_topk=TOPK,
        exact=exact,
        hooks=NullHooks(),
        faults=faults,
    )


def built(batch: ForwardBatch, layout: CacheLayout, *, compress: bool = True, **options) -> DSV4Metadata:
    return build_metadata(batch, make_context(layout, **options), compress=compress)


@dataclass(frozen=True)
class Row:
    """One query row. start, end: of its request's rows; first: index of the first; pages: of its request."""

    slot: int
    start: int
    end: int
    first: int
    position: int
    pages: list[int]

    def compressed_row(self, entry: int, layout: CacheLayout, ratio: int) -> int:
        token = entry * ratio
        return (self.pages[token // layout.page_size] * layout.page_size + token % layout.page_size) // ratio


def each_row(batch: ForwardBatch, pages: torch.Tensor) -> Iterator[Row]:
    first = 0
    lens = zip(batch.req_slots.tolist(), batch.seq_lens.tolist(), batch.extend_lens_host, strict=True)
    for slot, end, count in lens:
        for position in range(end - count, end):
            yield Row(slot, end - count, end, first, position, pages[slot].tolist())
        first += count
