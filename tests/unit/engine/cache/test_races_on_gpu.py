"""Copies and table writes that overtake each other on a GPU, with their safeguards and without them."""

from __future__ import annotations

import pytest
import torch

from dsv4_engine.cache.layout import CacheLayout, CacheShape
from dsv4_engine.cache.request_table import RequestTable
from dsv4_engine.cache.staging import Faults, StagingRing, checksum_of
from dsv4_engine.checkpoint.configs import tiny_config
from dsv4_engine.plan import TableWrite, TailLoad, TailSave
from engine_batches import CPU, golden_runner, make_batch, poison, random_ids, worst

pytestmark = pytest.mark.gpu

GPU = torch.device("cuda:0")
BUSY_CYCLES = 200_000_000
"""About a tenth of a second: far longer than the host needs for what follows."""


@pytest.fixture(autouse=True)
def full_float32():
    if not torch.cuda.is_available():
        pytest.skip("no CUDA or HIP device")
    torch.backends.cuda.matmul.allow_tf32 = False


def test_owned_buffers_keep_values_whose_copies_are_pending():
    ring = StagingRing(GPU, buffers=3)
    torch.cuda._sleep(BUSY_CYCLES)
    uploads = [ring.upload(([value] * 100,)) for value in range(9)]
    assert [upload.tensor().tolist() for upload in uploads] == [[[value] * 100] for value in range(9)]
    assert ring.waits > 0


def test_a_freed_buffer_is_overwritten_before_its_raw_copy_runs():
    ring = StagingRing(GPU, faults=Faults(freed_staging=True))
    ring.upload(([0] * 4000,)).tensor()  # pins what the next two need
    torch.cuda.synchronize()
    torch.cuda._sleep(BUSY_CYCLES)
    first, second = ring.upload((list(range(3000)),)), ring.upload(([7] * 3000,))
    assert first.tensor().tolist() == second.tensor().tolist() == [[7] * 3000]
    assert int(checksum_of(first.tensor())) != first.checksum
    assert int(checksum_of(second.tensor())) == second.checksum


@pytest.mark.parametrize("fault", [False, True])
def test_a_table_write_overtakes_a_pending_read_only_without_the_barrier(fault):
    layout = CacheLayout.plan(tiny_config(), CacheShape(max_requests=3, context_len=500))
    table = RequestTable(layout, device=GPU, staging=StagingRing(GPU), faults=Faults(no_war_barrier=fault))
    table.apply([TableWrite(slot=1, column=0, page=5)])
    torch.cuda.synchronize()
    torch.cuda._sleep(BUSY_CYCLES)
    read = table.pages.clone()
    table.apply([TableWrite(slot=1, column=0, page=6)])
    later = table.pages.clone()
    assert read[1, 0].item() == (6 if fault else 5) and later[1, 0].item() == 6


@pytest.mark.parametrize("plan_on", ["device", "host"])
def test_a_prefix_continues_from_its_tail(plan_on):
    ids, runner = random_ids(300, seed=4), golden_runner(device=GPU, num_tails=2, plan_on=plan_on)
    expected = golden_runner(device=CPU).forward_target(make_batch((1, 0, ids))).logits[256:]
    poison(runner)
    saves = [TailSave(slot=1, boundary=256, tail=1)]
    runner.forward_target(make_batch((1, 0, ids), device=GPU, tail_saves=saves))
    runner.apply([TableWrite(slot=2, column=0, page=1)])
    runner.load_tails([TailLoad(slot=2, boundary=256, tail=1)])
    logits = runner.forward_target(make_batch((2, 256, ids[256:]), device=GPU)).logits
    assert worst(logits.cpu(), expected) < 1e-4 and not runner.plan_fallbacks
