"""The same forward passes on a GPU: golden numbers, no host wait, and the two reads that #29202 is about."""

from __future__ import annotations

import warnings

import pytest
import torch
from safetensors.torch import load_file

from dsv4_engine.checkpoint.load import load_checkpoint
from dsv4_engine.parallel.group import close, init_process_group
from dsv4_engine.phase import Phase
from engine_batches import GOLDEN, golden_runner, make_batch, make_runner, random_ids, worst

pytestmark = pytest.mark.gpu

GPU = torch.device("cuda:0")


@pytest.fixture(autouse=True)
def full_float32():
    if not torch.cuda.is_available():
        pytest.skip("no CUDA or HIP device")
    torch.backends.cuda.matmul.allow_tf32 = False


def test_golden_logits_in_float32():
    golden, runner = load_file(GOLDEN / "golden.safetensors"), golden_runner(device=GPU)
    for length in (1, 33, 129, 300):
        ids, first = golden[f"p{length}.input_ids"], golden[f"p{length}.greedy"][:1]
        output = runner.forward_target(make_batch((0, 0, ids), device=GPU))
        assert worst(output.logits.cpu(), golden[f"p{length}.logits"]) < 1e-4
        mtp = runner.forward_mtp(make_batch((0, 0, torch.cat((ids[1:], first))), device=GPU), output.streams)
        assert worst(mtp.logits.cpu(), golden[f"p{length}.mtp_logits"]) < 1e-4


def test_chunks_drafts_and_single_rows_equal_one_prefill():
    runner, ids = golden_runner(device=GPU), random_ids(300, seed=7)
    full = runner.forward_target(make_batch((0, 0, ids), device=GPU)).logits.cpu()
    start, parts = 0, []
    for size in (60, 4, 1, 128, 1, 1, 4, 101):
        runner.forward_target(make_batch((1, start, random_ids(4, seed=start)), device=GPU))
        parts.append(runner.forward_target(make_batch((1, start, ids[start : start + size]), device=GPU)).logits.cpu())
        start += size
    assert worst(torch.cat(parts), full) < 1e-4


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize("exact", [True, False])
def test_the_inexact_expansion_is_the_only_thing_that_makes_the_host_wait(dtype, rows, exact):
    runner = golden_runner(device=GPU, dtype=dtype, exact=exact)
    parts = [(slot, 130, random_ids(rows, seed=slot)) for slot in range(4)]
    batch, last = make_batch(*parts, phase=Phase.TARGET_VERIFY, device=GPU), torch.tensor([0], device=GPU)
    for _ in range(2):
        waits = count_waits(runner, batch, last)
    assert len(waits) == (0 if exact or rows == 1 else 4), waits


def count_waits(runner, batch, last) -> list[str]:
    """Messages of the waits that torch sees in one target and one MTP pass; the expansion runs once in each."""
    torch.cuda.synchronize()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            streams = runner.forward_target(batch, logits_rows=last).streams
            runner.forward_mtp(batch, streams, logits_rows=last)
        finally:
            torch.cuda.set_sync_debug_mode("default")
    return [str(warning.message) for warning in caught if "synchroniz" in str(warning.message)]


def logits_on_rank(rank: int, size: int, folder: str) -> None:
    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    torch.backends.cuda.matmul.allow_tf32 = False
    group = init_process_group(rank=rank, size=size, device=device, init_method=f"file://{folder}/meet")
    config, weights = load_checkpoint(GOLDEN, tp_rank=rank, tp_size=size)
    ids = load_file(GOLDEN / "golden.safetensors")["p257.input_ids"]
    runner = make_runner(config, weights, device=device, group=group)
    torch.save(runner.forward_target(make_batch((0, 0, ids), device=device)).logits.cpu(), f"{folder}/{rank}.pt")
    close(group)


def test_two_gpus_give_the_golden_logits(tmp_path):
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU only")
    torch.multiprocessing.start_processes(logits_on_rank, args=(2, str(tmp_path)), nprocs=2, start_method="spawn")
    expected = load_file(GOLDEN / "golden.safetensors")["p257.logits"]
    for rank in range(2):
        assert worst(torch.load(tmp_path / f"{rank}.pt"), expected) < 1e-4
