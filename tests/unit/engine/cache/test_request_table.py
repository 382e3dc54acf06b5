"""The request table: pages entered by plan, fixed runs of pages, and what it refuses."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dsv4_engine.cache.layout import CacheLayout, CacheShape
from dsv4_engine.cache.request_table import RequestTable
from dsv4_engine.cache.staging import Faults, StagingRing
from dsv4_engine.checkpoint.configs import tiny_config
from dsv4_engine.errors import EngineError
from dsv4_engine.plan import TableWrite
from engine_batches import CPU, golden_runner, make_batch, random_ids


def make_table(**shape: int) -> RequestTable:
    shape = {"max_requests": 3, "context_len": 500, "page_size": 128} | shape
    layout = CacheLayout.plan(tiny_config(), CacheShape(**shape))
    return RequestTable(layout, device=CPU, staging=StagingRing(CPU))


WRITES = st.lists(st.tuples(st.integers(1, 3), st.integers(0, 3), st.integers(0, 12)), max_size=9)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.lists(WRITES, max_size=4))
def test_writes_land_where_they_say_and_nowhere_else(steps):
    table = make_table()
    expected = [[0] * 4 for _ in range(4)]
    for step in steps:
        step = list({(slot, column): (slot, column, page) for slot, column, page in step}.values())
        table.apply([TableWrite(slot=slot, column=column, page=page) for slot, column, page in step])
        for slot, column, page in step:
            expected[slot][column] = page
    assert table.pages.tolist() == expected and table.pages.dtype == torch.int32


def test_fixed_runs_give_every_slot_its_own_pages_and_padding_none():
    table = make_table()
    table.identity()
    assert table.pages.tolist() == [[0] * 4, [1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]]
    with pytest.raises(EngineError, match="11 pages do not give every slot its own, which takes 12"):
        make_table(num_pages=11).identity()


@pytest.mark.parametrize("write", [(0, 0, 1), (4, 0, 1), (-1, 0, 1), (1, 4, 1), (1, -1, 1), (1, 0, 13), (1, 0, -1)])
def test_a_write_outside_is_refused_before_anything_is_written(write):
    table = make_table()
    slot, column, page = write
    bad = TableWrite(slot=slot, column=column, page=page)
    with pytest.raises(EngineError, match="outside the request table of 3 slots, 4 columns and 12 pages"):
        table.apply([TableWrite(slot=1, column=0, page=5), bad])
    assert not table.pages.any()


def test_without_the_barrier_a_cpu_writes_the_same():
    table = make_table()
    bare = RequestTable(table._layout, device=CPU, staging=StagingRing(CPU), faults=Faults(no_war_barrier=True))
    for each in (table, bare):
        each.apply([TableWrite(slot=2, column=1, page=7)])
    assert torch.equal(table.pages, bare.pages) and table.pages[2, 1] == 7


def test_pages_in_any_order_give_the_same_logits():
    ids = random_ids(300, seed=3)
    expected = golden_runner().forward_target(make_batch((1, 0, ids))).logits
    runner = golden_runner(own_pages=False, page_size=128)
    order = iter((11, 2, 7, 5))
    runner.apply([TableWrite(slot=2, column=column, page=next(order)) for column in range(4)])
    parts = [runner.forward_target(make_batch((2, at, ids[at : at + 100]))).logits for at in (0, 100, 200)]
    assert (torch.cat(parts) - expected).abs().max() < 2e-5


def test_without_pages_compressed_rows_go_to_the_padding_page_alone():
    runner = golden_runner(own_pages=False)
    for pool in runner.layer_pools:
        pool.unified.zero_()
    runner.forward_target(make_batch((1, 0, random_ids(300, seed=3))))
    for pool in filter(lambda pool: pool.attention, runner.layer_pools):
        rows = pool.attention.keys.any(1).nonzero()[:, 0]
        assert len(rows) and rows.max() < 64
