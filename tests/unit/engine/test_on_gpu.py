"""The engine on a GPU: golden numbers, captured graphs, no host wait, and the two reads that #29202 is about."""

from __future__ import annotations

import gc
import warnings

import pytest
import torch
from safetensors.torch import load_file

from dsv4_engine.checkpoint.load import load_checkpoint
from dsv4_engine.graphs.cuda import CudaGraphMaker
from dsv4_engine.parallel.group import close, init_process_group
from dsv4_engine.parallel.groups import ParallelGroups
from dsv4_engine.phase import Phase
from dsv4_engine.plan import StepPlan
from dsv4_engine.request import SamplingParams
from engine_batches import GOLDEN, golden_runner, make_batch, make_runner, random_ids, worst
from serving import make_engine, random_prompts, run, tokens_of
from worker_steps import do, generate, make_request, make_worker, prefill, running

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
        output = runner.forward_target(make_batch((1, 0, ids), device=GPU))
        assert worst(output.logits.cpu(), golden[f"p{length}.logits"]) < 1e-4
        mtp = runner.forward_mtp(make_batch((1, 0, torch.cat((ids[1:], first))), device=GPU), output.streams)
        assert worst(mtp.logits.cpu(), golden[f"p{length}.mtp_logits"]) < 1e-4


def test_chunks_drafts_and_single_rows_equal_one_prefill():
    runner, ids = golden_runner(device=GPU), random_ids(300, seed=7)
    full = runner.forward_target(make_batch((1, 0, ids), device=GPU)).logits.cpu()
    start, parts = 0, []
    for size in (60, 4, 1, 128, 1, 1, 4, 101):
        runner.forward_target(make_batch((2, start, random_ids(4, seed=start)), device=GPU))
        parts.append(runner.forward_target(make_batch((2, start, ids[start : start + size]), device=GPU)).logits.cpu())
        start += size
    assert worst(torch.cat(parts), full) < 1e-4


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows", [1, 4])
@pytest.mark.parametrize("exact", [True, False])
def test_the_inexact_expansion_is_the_only_thing_that_makes_the_host_wait(dtype, rows, exact):
    runner = golden_runner(device=GPU, dtype=dtype, exact=exact)
    parts = [(slot, 130, random_ids(rows, seed=slot)) for slot in range(1, 5)]
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


def golden_prompts() -> dict[str, list[int]]:
    golden = load_file(GOLDEN / "golden.safetensors")
    return {key.split(".")[0]: ids.tolist() for key, ids in golden.items() if key.endswith(".input_ids")}


@pytest.mark.parametrize("num_drafts", [0, 3])
def test_served_golden_tokens_with_overlap_and_captured_graphs(num_drafts):
    golden, prompts = load_file(GOLDEN / "golden.safetensors"), golden_prompts()
    engine = make_engine(device="cuda", num_drafts=num_drafts, exact_num_tokens=True)
    assert engine.options.overlaps
    results = run(engine, list(prompts.values()), max_new_tokens=40)
    for name, result in zip(prompts, results, strict=True):
        assert result.tokens == tuple(golden[f"{name}.greedy"].tolist()), name
    stats = engine.worker.graph_stats()
    expected = {Phase.TARGET_VERIFY, Phase.DRAFT, Phase.DRAFT_EXTEND} if num_drafts else {Phase.DECODE}
    assert set(stats.replays) == expected
    assert set(stats.eager) == {Phase.PREFILL}, stats.reasons
    assert stats.num_bytes > 0


SAMPLED = SamplingParams(temperature=0.9, top_k=50, top_p=0.95, frequency_penalty=0.3, logprobs=2)


@pytest.mark.parametrize("overlap", [False, True])
def test_drawn_tokens_are_those_of_eager_phases_one_by_one(overlap):
    prompts = random_prompts([5, 33, 121, 126], seed=9)
    alone = make_engine(device="cuda", num_drafts=0, graphs=False, overlap=False, exact_num_tokens=True)
    together = make_engine(device="cuda", num_drafts=3, overlap=overlap, exact_num_tokens=True)
    outputs = []
    for engine in (alone, together):
        for index, prompt in enumerate(prompts):
            engine.add(
                prompt, max_new_tokens=20, ignore_eos=True, sampling=SamplingParams(**vars(SAMPLED) | {"seed": index})
            )
            while engine is alone and engine.has_work:
                engine.step()
        while engine.has_work:
            engine.step()
        outputs.append([engine.result(index).tokens for index in range(len(prompts))])
    assert outputs[0] == outputs[1]


@pytest.mark.parametrize("params", [SamplingParams(), SAMPLED], ids=["greedy", "everything"])
@pytest.mark.parametrize("graphs", [False, True])
@pytest.mark.parametrize("num_drafts", [0, 3])
def test_launching_a_decode_step_never_waits(num_drafts, graphs, params):
    worker = make_worker(num_drafts=num_drafts, graphs=graphs, lengths_known=False, device=GPU)
    batch = [make_request(slot, 12, sampling=params) for slot in (1, 2)]
    do(worker, StepPlan(chunks=prefill(*batch)))
    do(worker, StepPlan(running=running(*batch)))
    for _ in range(3):
        torch.cuda.synchronize()
        torch.cuda.set_sync_debug_mode("error")
        try:
            pending = worker.launch(StepPlan(running=running(*batch)))
        finally:
            torch.cuda.set_sync_debug_mode("default")
        for request, tokens in zip(batch, pending.read().tokens, strict=True):
            request.take(tokens)


def test_graphs_hand_on_what_eager_phases_do():
    relays = []
    for graphs in (False, True):
        worker = make_worker(graphs=graphs, device=GPU)
        batch = [make_request(slot, length, output=60) for slot, length in ((1, 9), (2, 122), (3, 60))]
        do(worker, StepPlan(chunks=prefill(*batch)))
        for _ in range(6):
            do(worker, StepPlan(running=running(*batch)))
        relays.append(worker.relay)
    eager, captured = relays
    assert torch.equal(captured.first_draft, eager.first_draft)
    assert torch.equal(captured.seq_lens, eager.seq_lens)
    assert worst(captured.streams.cpu(), eager.streams.cpu()) < 1e-4


def test_capturing_at_start_and_in_bfloat16():
    engine = make_engine(device="cuda", dtype="bfloat16", num_drafts=2, exact_num_tokens=True)
    results = run(engine, random_prompts([5, 60, 130]), max_new_tokens=20)
    assert [len(tokens) for tokens in tokens_of(results)] == [20] * 3
    worker = make_worker(num_drafts=1, graphs=True, capture_at_start=True, device=GPU)
    assert len(worker.graph_stats().graphs) == 6
    eager = generate(make_worker(num_drafts=1, graphs=False, device=GPU), [make_request(1), make_request(2)])
    assert generate(worker, [make_request(1), make_request(2)]) == eager


def logits_on_rank(rank: int, size: int, folder: str) -> None:
    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    torch.backends.cuda.matmul.allow_tf32 = False
    group = init_process_group(rank=rank, size=size, device=device, init_method=f"file://{folder}/meet")
    config, weights = load_checkpoint(GOLDEN, place=ParallelGroups.tensor_parallel(group).place)
    ids = load_file(GOLDEN / "golden.safetensors")["p257.input_ids"]
    runner = make_runner(config, weights, device=device, groups=ParallelGroups.tensor_parallel(group))
    torch.save(runner.forward_target(make_batch((1, 0, ids), device=device)).logits.cpu(), f"{folder}/{rank}.pt")
    close(group)


def test_two_gpus_give_the_golden_logits(tmp_path):
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU only")
    torch.multiprocessing.start_processes(logits_on_rank, args=(2, str(tmp_path)), nprocs=2, start_method="spawn")
    expected = load_file(GOLDEN / "golden.safetensors")["p257.logits"]
    for rank in range(2):
        assert worst(torch.load(tmp_path / f"{rank}.pt"), expected) < 1e-4


def test_no_old_graph_is_freed_within_a_capture():
    maker, calls, usual = CudaGraphMaker(GPU), [], gc.get_threshold()

    def function(values):
        calls.append(None)
        if len(calls) == 3:  # the capture; the two before it warm up
            gc.set_threshold(1)
            for _ in range(100):
                garbage: list[object] = []
                garbage.append(garbage)
        return values * 2

    gc.set_threshold(10**6)
    try:
        # Garbage that only a collection finds, and that is young enough for the first one.
        old = [maker.capture(lambda values: values + 1, torch.ones(4, device=GPU))]
        old.append(old)
        del old
        graph = maker.capture(function, torch.ones(4, device=GPU))
    finally:
        gc.set_threshold(*usual)
    assert graph.replay(torch.full((4,), 3.0, device=GPU)).tolist() == [6.0] * 4
