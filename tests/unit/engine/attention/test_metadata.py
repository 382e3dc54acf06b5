"""Metadata against loops that say row by row what it means, on random batches."""

from __future__ import annotations

from dataclasses import fields

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dsv4_engine.attention.metadata import attach_prefill_meta, build_metadata
from dsv4_engine.cache.layout import CacheLayout
from dsv4_engine.hooks import NullHooks
from engine_batches import make_batch

SLOTS, POSITIONS = 5, 600


@st.composite
def layouts(draw):
    window, drafts = draw(st.integers(1, 40)), draw(st.integers(0, 5))
    return CacheLayout(
        num_slots=SLOTS,
        max_positions=POSITIONS,
        window=window,
        window_ring=window + drafts,
        entries={4: POSITIONS // 4 + 1, 128: POSITIONS // 128 + 1},
        state_ring={4: 8 + drafts, 128: 128 + drafts},
    )


@st.composite
def batches(draw):
    slots = draw(st.lists(st.integers(0, SLOTS - 1), min_size=1, max_size=SLOTS, unique=True))
    parts = []
    for slot in slots:
        length = draw(st.one_of(st.integers(1, 6), st.integers(1, 300)))
        edge = draw(st.sampled_from((0, 4, 32, 128, 256)))
        start = min(max(0, edge + draw(st.integers(-5, 5))), POSITIONS - length)
        parts.append((slot, start, torch.zeros(length, dtype=torch.int64)))
    return make_batch(*parts)


def built(batch, layout, *, exact=True):
    return build_metadata(batch, layout, ratios=(4, 128), exact=exact, hooks=NullHooks())


def each_row(batch):
    """(row, request, slot, start, end, first row, position) of every query row."""
    row = 0
    lens = zip(batch.req_slots.tolist(), batch.seq_lens_host, batch.extend_lens_host, strict=True)
    for request, (slot, end, count) in enumerate(lens):
        first = row
        for position in range(end - count, end):
            yield row, request, slot, end - count, end, first, position
            row += 1


@settings(max_examples=60, deadline=None)
@given(batches(), layouts())
def test_rows_and_window_say_what_the_loops_say(batch, layout):
    meta, ring = built(batch, layout), layout.window_ring
    for row, request, slot, start, end, first, position in each_row(batch):
        expected = {"request": request, "slot": slot, "chunk_start": start, "chunk_row": first, "final_pos": end - 1}
        assert {name: int(getattr(meta.rows, name)[row]) for name in expected} == expected
        for column, key in enumerate(range(position - layout.window + 1, position + 1)):
            assert bool(meta.window.valid[row, column]) == (key >= 0)
            if key < 0:
                continue
            assert bool(meta.window.in_chunk[row, column]) == (key >= start)
            if key >= start:
                assert meta.window.flat_index[row, column] == first + key - start
            else:
                assert meta.window.ring_index[row, column] == slot * ring + key % ring
        stays = end - 1 - position < ring
        assert meta.window.write_index[row] == (slot * ring + position % ring if stays else layout.window_trash)


@settings(max_examples=60, deadline=None)
@given(batches(), layouts(), st.sampled_from((4, 128)))
def test_the_compress_plan_holds_each_completed_window_once(batch, layout, ratio):
    plan = built(batch, layout).compress[ratio]
    ring, entries, span = layout.state_ring[ratio], layout.entries[ratio], 8 if ratio == 4 else 128
    completed = {}
    for row, _, slot, start, end, first, position in each_row(batch):
        assert plan.visible[row] == sum((entry + 1) * ratio <= position + 1 for entry in range(entries))
        assert plan.entry_base[row] == slot * entries
        assert plan.state_phase[row] == position % ratio
        stays = end - 1 - position < ring
        assert plan.state_write[row] == (slot * ring + position % ring if stays else layout.state_trash(ratio))
        if (position + 1) % ratio == 0:
            completed[slot * entries + position // ratio] = (slot, start, first, position)
    assert len(plan.entry_write) == batch.num_tokens // ratio + batch.num_requests
    assert plan.max_entries == max(batch.seq_lens_host) // ratio
    written = [address for address in plan.entry_write.tolist() if address != layout.entry_trash(ratio)]
    assert sorted(written) == sorted(completed)
    for index, address in enumerate(plan.entry_write.tolist()):
        if address == layout.entry_trash(ratio):
            continue
        slot, start, first, position = completed[address]
        assert plan.entry_pos[index] == position + 1 - ratio
        for column, source in enumerate(range(position - span + 1, position + 1)):
            assert bool(plan.valid[index, column]) == (source >= 0)
            if source >= start:
                assert plan.in_chunk[index, column]
                assert plan.flat_index[index, column] == first + source - start
            elif source >= 0:
                assert not plan.in_chunk[index, column]
                assert plan.ring_index[index, column] == slot * ring + source % ring


@settings(max_examples=40, deadline=None)
@given(batches(), layouts())
def test_every_address_lies_inside_its_pool(batch, layout):
    meta = built(batch, layout)
    assert meta.window.ring_index.min() >= 0 and meta.window.ring_index.max() < layout.window_trash
    assert meta.window.flat_index.min() >= 0 and meta.window.flat_index.max() < batch.num_tokens
    for ratio, plan in meta.compress.items():
        assert plan.ring_index.min() >= 0 and plan.ring_index.max() < layout.state_trash(ratio)
        assert plan.flat_index.min() >= 0 and plan.flat_index.max() < batch.num_tokens
        assert plan.entry_write.min() >= 0 and plan.entry_write.max() <= layout.entry_trash(ratio)


def tensors(meta) -> dict[str, torch.Tensor]:
    parts = {"rows": meta.rows, "window": meta.window} | {f"c{ratio}": plan for ratio, plan in meta.compress.items()}
    return {
        f"{name}.{field.name}": getattr(part, field.name)
        for name, part in parts.items()
        for field in fields(part)
        if field.name != "max_entries"
    }


@settings(max_examples=40, deadline=None)
@given(batches(), layouts())
def test_both_forms_of_the_expansion_give_identical_tensors(batch, layout):
    exact, inexact = (tensors(built(batch, layout, exact=flag)) for flag in (True, False))
    assert len(exact) == 30 and exact.keys() == inexact.keys()
    assert all(torch.equal(exact[name], inexact[name]) for name in exact)


def test_a_single_row_batch_is_the_expansion_of_ones():
    slots, lens = torch.tensor([3, 0, 2]), torch.tensor([7, 130, 1])
    token = torch.zeros(1, dtype=torch.int64)
    batch = make_batch((3, 6, token), (0, 129, token), (2, 0, token))
    layout = CacheLayout(num_slots=5, max_positions=600, window=8, window_ring=11, entries={}, state_ring={})
    built_rows = build_metadata(batch, layout, ratios=(), exact=False, hooks=NullHooks()).rows
    expanded = attach_prefill_meta(slots, lens, torch.ones(3, dtype=torch.int64), num_tokens=3, exact=True)
    for field in fields(expanded):
        assert torch.equal(getattr(built_rows, field.name), getattr(expanded, field.name)), field.name


def test_a_wrong_number_of_tokens_is_refused_and_never_padded():
    slots, lens = torch.tensor([0, 1]), torch.tensor([4, 5])
    with pytest.raises(RuntimeError):
        attach_prefill_meta(slots, lens, torch.tensor([2, 3]), num_tokens=8, exact=True)
