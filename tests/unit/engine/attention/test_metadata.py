"""Every tensor of the metadata against loops that say row by row what it means, on random batches."""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dsv4_engine.attention.metadata import attach_prefill_meta, single_row_meta
from dsv4_engine.attention.tree import tensors
from dsv4_engine.cache.layout import CacheLayout
from dsv4_engine.cache.staging import Faults
from dsv4_engine.errors import EngineError
from dsv4_engine.phase import Phase
from engine_batches import make_batch
from metadata_cases import POSITIONS, SLOTS, TOPK, batches, built, each_row, layouts, make_context

torch.set_num_threads(1)
BOUNDED = settings(max_examples=25, deadline=None, derandomize=True)


def aligned(width: int) -> int:
    return (width + 63) // 64 * 64


def check(meta, dtype: torch.dtype, **expected: list) -> None:
    for name, values in expected.items():
        actual = getattr(meta, name)
        assert (actual.tolist(), actual.dtype) == (values, dtype), name


@BOUNDED
@given(batches(None), layouts(), st.booleans())
def test_lengths_and_window_rows(batch, layout, compress):
    meta, ring = built(batch, layout, compress=compress), layout.window_ring
    rows = list(each_row(batch, make_context(layout).table.pages))
    positions = [row.position for row in rows]
    check(meta, torch.int64, positions=positions)
    window = [
        [row.slot * ring + (row.position - back) % ring if back < min(row.position + 1, layout.window) else -1
         for back in range(aligned(layout.window))]
        for row in rows
    ]  # fmt: skip
    check(
        meta.core,
        torch.int32,
        seq_lens_casual=[position + 1 for position in positions],
        positions_casual=positions,
        swa_topk_lengths=[min(position + 1, layout.window) for position in positions],
        swa_page_indices=window,
    )
    kept = [row.end - 1 - row.position < ring for row in rows]
    places = [row.slot * ring + row.position % ring if keep else 0 for row, keep in zip(rows, kept, strict=True)]
    check(meta.unified, torch.int32, swa_loc=places)
    check(
        meta.unified,
        torch.int64,
        pf_state_slot=[row.slot for row in rows],
        pf_chunk_start=[row.start for row in rows],
        pf_cu_q=[row.first for row in rows],
        pf_final_pos=[row.end - 1 for row in rows],
    )
    assert (meta.unified.window, meta.unified.swa_pages) == (layout.window, (SLOTS + 1) * ring)


@BOUNDED
@given(batches(None), layouts())
def test_pages_and_what_compression_adds(batch, layout):
    batch = replace(batch, phase=Phase.PREFILL if batch.phase is Phase.DRAFT_EXTEND else batch.phase)
    meta, size = built(batch, layout), layout.page_size
    core, unified = meta.core, meta.unified
    rows = list(each_row(batch, make_context(layout).table.pages))
    raw = [row.pages[row.position // size] * size + row.position % size for row in rows]
    visible = {ratio: [(row.position + 1) // ratio for row in rows] for ratio in (4, 128)}
    ends = {ratio: [(row.position + 1) % ratio == 0 for row in rows] for ratio in (4, 128)}
    completed = {
        ratio: [loc // ratio if end else 0 for loc, end in zip(raw, ends[ratio], strict=True)] for ratio in (4, 128)
    }
    if not layout.ratios:
        assert core.raw_out_loc is core.page_table is None
    else:
        check(core, torch.int64, raw_out_loc=raw)
        check(core, torch.int32, page_table=[row.pages[: -(-batch.max_seq_len // size)] for row in rows])
    if 4 in layout.ratios:
        choices = min(TOPK, batch.max_seq_len // 4)
        chosen = [min(count, choices) for count in visible[4]]
        check(core, torch.int64, c4_out_loc=completed[4])
        check(unified, torch.int64, c4_out_loc=[loc + layout.swa_pages for loc in completed[4]])
        check(
            core,
            torch.int32,
            c4_topk_lengths_raw=visible[4],
            c4_topk_lengths_clamp1=[max(count, 1) for count in visible[4]],
            c4_sparse_topk_lengths_raw=chosen,
            c4_sparse_topk_lengths=[max(count, 1) for count in chosen],
            c4_sparse_page_indices=[[-1] * choices] * len(rows),
            c4_sparse_raw_indices=[[-1] * choices] * len(rows),
        )
    else:
        assert core.c4_out_loc is core.c4_sparse_page_indices is core.c4_topk_lengths_raw is meta.indexer is None
        assert unified.c4_out_loc is None
    if 128 in layout.ratios:
        entries = [
            [row.compressed_row(entry, layout, 128) if entry < count else -1
             for entry in range(aligned(batch.max_seq_len // 128))]
            for row, count in zip(rows, visible[128], strict=True)
        ]  # fmt: skip
        check(core, torch.int64, c128_out_loc=completed[128])
        check(unified, torch.int64, c128_out_loc=[loc + layout.swa_pages for loc in completed[128]])
        check(
            core,
            torch.int32,
            c128_topk_lengths_raw=visible[128],
            c128_topk_lengths_clamp1=[max(count, 1) for count in visible[128]],
            c128_page_indices=entries,
        )
    else:
        assert core.c128_out_loc is core.c128_page_indices is unified.c128_out_loc is None


def lists(indices: torch.Tensor, indptr: torch.Tensor) -> list[list[int]]:
    assert indices.dtype == indptr.dtype == torch.int32 and indptr[0] == 0 and indptr[-1] < len(indices)
    return [indices[start:end].tolist() for start, end in pairwise(indptr.tolist())]


@BOUNDED
@given(st.sampled_from((Phase.DECODE, Phase.TARGET_VERIFY)).flatmap(batches), layouts(), st.booleans())
def test_streams_hold_window_rows_then_compressed_ones(batch, layout, compress):
    meta = built(batch, layout, compress=compress)
    streams, ring, ratios = meta.unified.streams, layout.window_ring, layout.ratios if compress else ()
    rows = list(each_row(batch, make_context(layout).table.pages))
    window = [
        [row.slot * ring + (row.position - back) % ring for back in range(min(row.position + 1, layout.window))]
        for row in rows
    ]
    assert lists(streams.swa_indices, streams.swa_indptr) == window
    assert (streams.hca_indices is None, streams.csa_indices is None) == (128 not in ratios, 4 not in ratios)
    assert (meta.unified.verify_store_state_slot is None) == (not ratios)
    if ratios:
        check(meta.unified, torch.int64, verify_store_state_slot=[row.slot for row in rows])
    if 128 in ratios:
        tails = [
            [layout.swa_pages + row.compressed_row(entry, layout, 128) for entry in range((row.position + 1) // 128)]
            for row in rows
        ]
        expected = [row + tail for row, tail in zip(window, tails, strict=True)]
        assert lists(streams.hca_indices, streams.hca_indptr) == expected
    if 4 in ratios:
        marks = torch.arange(1000, 1000 + streams.csa_tail_loc.numel()).view(streams.csa_tail_loc.shape)
        streams.csa_indices[streams.csa_tail_loc] = marks.to(torch.int32)
        chosen = [min((row.position + 1) // 4, TOPK) for row in rows]
        expected = [row + mark[:count].tolist() for row, mark, count in zip(window, marks, chosen, strict=True)]
        assert lists(streams.csa_indices, streams.csa_indptr) == expected


def test_a_prefill_and_a_draft_extend_have_no_streams():
    layout = CacheLayout(
        num_slots=6, num_pages=16, num_tails=0, page_size=256, pages_per_request=3, max_positions=600, window=8,
        window_ring=11, ratios=(4, 128), state_ring={4: 16, 128: 256},
    )  # fmt: skip
    for phase in (Phase.PREFILL, Phase.DRAFT_EXTEND):
        unified = built(make_batch((1, 5, torch.zeros(4, dtype=torch.int64)), phase=phase), layout).unified
        assert unified.streams is unified.verify_store_state_slot is None


@BOUNDED
@given(batches(), layouts(ratios=((4, 128), (4,))), st.booleans())
def test_the_indexer_finds_each_visible_key(batch, layout, one_tensor):
    indexer = built(batch, layout).indexer
    indexer = indexer if one_tensor else replace(indexer, key_rows=None)
    assert indexer.max_c4_seq_len == batch.max_seq_len // 4
    found = indexer.rows_of(slice(None)).tolist()
    for row, keys, count in zip(
        each_row(batch, make_context(layout).table.pages), found, indexer.c4_seq_lens.tolist(), strict=True
    ):
        assert count == (row.position + 1) // 4
        assert keys[:count] == [row.compressed_row(entry, layout, 4) for entry in range(count)]


@BOUNDED
@given(batches(), layouts())
def test_both_forms_of_the_expansion_give_identical_tensors(batch, layout):
    exact, inexact = (tensors(built(batch, layout, exact=flag)) for flag in (True, False))
    assert len(exact) >= 9 and exact.keys() == inexact.keys()
    assert all(torch.equal(exact[name], inexact[name]) for name in exact)


def with_padding(batch, rows: int):
    pad = torch.zeros(rows, dtype=torch.int64)
    return replace(batch, input_ids=torch.cat((batch.input_ids, pad)), positions=torch.cat((batch.positions, pad)))


@BOUNDED
@given(batches(None), layouts(), st.integers(1, 70))
def test_padded_rows_are_stored_nowhere_and_change_nothing(batch, layout, more):
    count = batch.num_tokens
    exact, padded = built(batch, layout), built(with_padding(batch, more), layout)
    for part in ("core", "unified"):
        for field in fields(getattr(exact, part)):
            own, other = getattr(getattr(exact, part), field.name), getattr(getattr(padded, part), field.name)
            if isinstance(own, torch.Tensor):
                assert len(other) == count + more and torch.equal(other[:count], own), field.name
    unified = padded.unified
    for name in ("swa_loc", "pf_state_slot", "pf_chunk_start", "pf_cu_q"):
        assert not getattr(unified, name)[count:].any(), name
    assert (unified.pf_final_pos[count:] == layout.longest_ring).all()
    for ratio, plan in padded.compress.items():
        assert not plan.state_write[count:].any()
        assert torch.equal(plan.plan_c, exact.compress[ratio].plan_c)
        assert torch.equal(plan.out_loc, exact.compress[ratio].out_loc)
    for name, list_ in (("c4_out_loc", padded.core.c4_out_loc), ("c128_out_loc", padded.core.c128_out_loc)):
        assert list_ is None or not list_[count:].any(), name


def test_a_single_row_batch_is_the_expansion_of_ones():
    slots, lens = torch.tensor([3, 1, 2]), torch.tensor([7, 130, 1])
    single = single_row_meta(slots, lens)
    expanded = attach_prefill_meta(slots, lens, torch.ones(3, dtype=torch.int64), num_tokens=3, exact=True)
    for field in fields(expanded):
        assert torch.equal(getattr(single, field.name), getattr(expanded, field.name)), field.name


def test_a_wrong_number_of_tokens_is_refused_and_never_padded():
    slots, lens = torch.tensor([0, 1]), torch.tensor([4, 5])
    with pytest.raises(EngineError, match=r"told 8 rows, which is not the sum of extend_lens") as caught:
        attach_prefill_meta(slots, lens, torch.tensor([2, 3]), num_tokens=8, exact=True)
    assert "num_tokens must be the exact number" in caught.value.hint


@BOUNDED
@given(batches(Phase.TARGET_VERIFY).filter(lambda batch: batch.num_tokens > batch.num_requests), layouts())
def test_a_padded_output_size_never_passes(batch, layout):
    faults = Faults(padded_output_size=True)
    with pytest.raises(EngineError, match="is not the sum of extend_lens"):
        built(batch, layout, faults=faults)
    assert built(batch, layout, faults=faults, exact=False).positions.tolist() == batch.positions.tolist()


def test_lengths_that_the_caches_cannot_hold_are_refused():
    layout = CacheLayout(
        num_slots=2, num_pages=4, num_tails=0, page_size=256, pages_per_request=3, max_positions=POSITIONS, window=8,
        window_ring=8, ratios=(), state_ring={},
    )  # fmt: skip
    with pytest.raises(AssertionError, match="outgrew"):
        built(make_batch((1, POSITIONS, torch.zeros(1, dtype=torch.int64))), layout)
