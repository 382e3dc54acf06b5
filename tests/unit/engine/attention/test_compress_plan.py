"""Plans of compression windows: against loops, from host and device, and with a staging buffer freed too early."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dsv4_engine.attention.compress_plan import CompressPlanner
from dsv4_engine.attention.metadata import build_metadata
from dsv4_engine.attention.tree import tensors
from dsv4_engine.cache.layout import CacheLayout
from dsv4_engine.cache.staging import Faults, StagingRing, checksum_of
from dsv4_engine.errors import EngineError
from dsv4_engine.phase import Phase
from engine_batches import CPU, golden_runner, make_batch, random_ids
from metadata_cases import POSITIONS, batches, built, each_row, layouts, make_context

torch.set_num_threads(1)
BOUNDED = settings(max_examples=25, deadline=None, derandomize=True)
COMPRESSING = layouts(ratios=((4, 128), (4,), (128,)))
PHASES = st.sampled_from((Phase.PREFILL, Phase.TARGET_VERIFY, Phase.DECODE)).flatmap(batches)


@BOUNDED
@given(PHASES, COMPRESSING)
def test_the_plan_holds_each_completed_window_once(batch, layout):
    meta = built(batch, layout)
    assert meta.compress.keys() == set(layout.ratios)
    rows = list(each_row(batch, make_context(layout).table.pages))
    for ratio, plan in meta.compress.items():
        ring, span = layout.state_ring[ratio], 8 if ratio == 4 else 128
        assert plan.state_phase.tolist() == [row.position % ratio for row in rows]
        kept = [row.end - 1 - row.position < ring for row in rows]
        states = [row.slot * ring + row.position % ring if keep else 0 for row, keep in zip(rows, kept, strict=True)]
        assert plan.state_write.tolist() == states
        assert plan.plan_c.shape == (4, batch.num_tokens // ratio + batch.num_requests)
        filled = [index for index, fills in enumerate(plan.plan_c[3].tolist()) if fills]
        completed = [index for index, row in enumerate(rows) if (row.position + 1) % ratio == 0]
        assert plan.plan_c[2][filled].tolist() == completed
        assert not plan.plan_c[:, len(filled) :].any() and not plan.out_loc[len(filled) :].any()
        for index, number in zip(filled, completed, strict=True):
            row = rows[number]
            assert plan.out_loc[index] == row.compressed_row(row.position // ratio, layout, ratio) > 0
            assert plan.entry_pos[index] == row.position + 1 - ratio
            sources = range(row.position - span + 1, row.position + 1)
            assert plan.valid[index].tolist() == [source >= 0 for source in sources]
            assert plan.in_chunk[index].tolist() == [source >= row.start for source in sources]
            flat, stored = plan.flat_index[index].tolist(), plan.ring_index[index].tolist()
            for column, source in enumerate(sources):
                if source >= row.start:
                    assert flat[column] == row.first + source - row.start
                elif source >= 0:
                    assert stored[column] == row.slot * ring + source % ring


@BOUNDED
@given(PHASES, COMPRESSING)
def test_every_address_lies_inside_its_pool(batch, layout):
    for ratio, plan in built(batch, layout).compress.items():
        places = (
            (plan.ring_index, layout.state_rows(ratio)),
            (plan.state_write, layout.state_rows(ratio)),
            (plan.flat_index, batch.num_tokens),
            (plan.out_loc, layout.compressed_rows(ratio)),
        )
        for index, rows in places:
            assert index.min() >= 0 and index.max() < rows


@BOUNDED
@given(PHASES, COMPRESSING)
def test_host_and_device_make_the_same_plan(batch, layout):
    context = make_context(layout, plan_on="host")
    host, device = tensors(build_metadata(batch, context, compress=True)), tensors(built(batch, layout))
    assert host.keys() == device.keys()
    assert all(torch.equal(host[name], device[name]) for name in host)
    unknown = batch.seq_lens_host is None
    assert context.planner.fallbacks.total() == (len(layout.ratios) if unknown else 0)


def test_a_fallback_says_why():
    runner = golden_runner(plan_on="host")
    batch = make_batch((1, 0, random_ids(9, seed=1)), known=False)
    expected = golden_runner().forward_target(make_batch((1, 0, random_ids(9, seed=1)))).logits
    assert torch.equal(runner.forward_target(batch).logits, expected)
    assert runner.plan_fallbacks == {"the host does not know the batch's lengths": 2}
    runner.forward_target(make_batch((1, 0, random_ids(9, seed=1))))
    assert runner.plan_fallbacks.total() == 2


def test_other_sides_are_refused():
    with pytest.raises(EngineError, match="plan_on is 'gpu'") as caught:
        CompressPlanner("gpu", StagingRing(CPU))
    assert caught.value.hint == "choose device or host"


def test_a_plan_staged_in_a_freed_buffer_becomes_the_next_one_and_its_checksum_shows_it():
    runner = golden_runner(plan_on="host", faults=Faults(freed_staging=True))
    batch = make_batch((1, 0, random_ids(256, seed=1)))
    with pytest.raises(EngineError, match="names rows that the step does not have") as caught:
        runner.prepare(batch, compress=True)  # on a GPU: an illegal address, or another request's keys
    assert "freed_staging" in caught.value.hint
    c4, c128 = runner.staged_plans
    assert (c4.ratio, c128.ratio) == (4, 128)
    assert c4.checksum != checksum_of(c4.plan_c) and c128.checksum == checksum_of(c128.plan_c)
    assert torch.equal(c4.plan_c.flatten()[:12], c128.plan_c.flatten())
    sound = golden_runner(plan_on="host")
    assert c4.checksum == checksum_of(sound.prepare(batch, compress=True).meta.compress[4].plan_c)
    assert not sound.staged_plans


@BOUNDED
@given(st.integers(1, POSITIONS), st.integers(0, 300))
def test_one_request_from_any_length(count, start):
    start = min(start, POSITIONS - count)
    batch = make_batch((3, start, torch.zeros(count, dtype=torch.int64)))
    layout = plain_layout()
    host = build_metadata(batch, make_context(layout, plan_on="host"), compress=True).compress
    for ratio, plan in host.items():
        windows = plan.plan_c[1][plan.plan_c[3].bool()].tolist()
        assert windows == [w for w in range(POSITIONS) if start < (w + 1) * ratio <= start + count]


def plain_layout() -> CacheLayout:
    return CacheLayout(
        num_slots=6, num_pages=16, num_tails=0, page_size=256, pages_per_request=3, max_positions=POSITIONS, window=8,
        window_ring=11, ratios=(4, 128), state_ring={4: 16, 128: 256},
    )  # fmt: skip


def test_the_number_of_planned_entries_follows_from_shapes_alone():
    layout = plain_layout()
    for start in (0, 3, 125, 130):
        batch = make_batch(*((slot, start + slot, torch.zeros(4, dtype=torch.int64)) for slot in (1, 2, 4)))
        meta = built(replace(batch, max_seq_len=300), layout)
        assert {name: tuple(tensor.shape) for name, tensor in tensors(meta.compress).items()} == {
            name: tuple(tensor.shape)
            for name, tensor in tensors(built(replace(batch, max_seq_len=300), layout, plan_on="host").compress).items()
        }
        assert meta.compress[4].plan_c.shape == (4, 6) and meta.compress[128].plan_c.shape == (4, 3)
