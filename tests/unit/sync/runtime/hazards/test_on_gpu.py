"""Hazards on a real device: the same programs as on shadow tensors, and the mechanism of a freed staging buffer."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys

import msgspec
import pytest
import torch

from dsv4_engine.cache.staging import Faults, StagingRing, _memcpy_async
from dsv4prof.sync.runtime.hazards import HazardWatch, check_plan, guard_plan
from dsv4prof.target.hazard_run import HazardSpec, watch_engine
from dsv4prof.target.spec import RunSpec
from hazard_programs import PROGRAMS, padded_total

pytestmark = pytest.mark.gpu
BUSY_CYCLES = 200_000_000
HOST_PLANS = {"plan_on": "host", "overlap": False}
ENGINE = RunSpec(
    model="dsv4-tiny",
    device="cuda",
    num_drafts=3,
    max_requests=3,
    requests=6,
    max_new_tokens=80,
    threads=1,
    page_size=128,
)


@pytest.fixture(autouse=True)
def device():
    if not torch.cuda.is_available():
        pytest.skip("no CUDA or HIP device")
    torch.cuda.synchronize()


def raw_copy(target, source):
    status = _memcpy_async()(
        ctypes.c_void_p(target.data_ptr()), ctypes.c_void_p(source.data_ptr()), ctypes.c_size_t(source.nbytes),
        ctypes.c_int(1), ctypes.c_void_p(torch.cuda.current_stream().cuda_stream),
    )  # fmt: skip
    assert status == 0


@pytest.mark.parametrize("program", [each for each in PROGRAMS if each is not padded_total], ids=lambda p: p.__name__)
def test_a_reported_hazard_is_found_and_its_clean_twin_is_not(program):
    with HazardWatch(gpu=True) as watch:
        program(clean=False)
    found = watch.hazards()
    assert {(hazard.code, hazard.trouble) for hazard in found} == {PROGRAMS[program]}
    for hazard in found:
        assert program.__name__ in {frame.function for frame in hazard.second.stack}
    torch.cuda.synchronize()
    with HazardWatch(gpu=True) as watch:
        program(clean=True)
    assert not watch.hazards()


def test_raw_copy_free_and_pin_again_is_found_and_does_corrupt():
    size = 1 << 16
    first_of_all = torch.zeros(size, dtype=torch.int64, pin_memory=True)
    del first_of_all
    torch.cuda.synchronize()
    target = torch.zeros(size, dtype=torch.int64, device="cuda")
    with HazardWatch(gpu=True) as watch:
        torch.cuda._sleep(BUSY_CYCLES)
        source = torch.full((size,), 1, dtype=torch.int64).pin_memory()
        address = source.data_ptr()
        raw_copy(target, source)
        del source
        again = torch.full((size,), 2, dtype=torch.int64).pin_memory()
    same = again.data_ptr() == address
    torch.cuda.synchronize()
    (hazard,) = [each for each in watch.hazards() if each.trouble == "freed"]
    assert hazard.code == "DSV203" and hazard.first.op == "a raw copy"
    assert hazard.first.stack[0].function == "raw_copy"
    assert hazard.memory.place == "pinned" and hazard.memory.nbytes == 8 * size
    assert not same or target[0].item() == 2


def test_torchs_own_copy_may_be_followed_by_a_free():
    target = torch.zeros(1 << 16, device="cuda")
    with HazardWatch(gpu=True) as watch:
        torch.cuda._sleep(BUSY_CYCLES)
        source = torch.ones(1 << 16).pin_memory()
        target.copy_(source, non_blocking=True)
        del source
        torch.zeros(1 << 16).pin_memory()
    assert not watch.hazards()


@pytest.mark.parametrize("fault", [False, True])
def test_the_engines_staging_ring(fault):
    with HazardWatch(gpu=True) as watch:
        ring = StagingRing(torch.device("cuda:0"), buffers=2, faults=Faults(freed_staging=fault))
        ring.upload(([0] * 3000,)).tensor()
        torch.cuda.synchronize()
        torch.cuda._sleep(BUSY_CYCLES)
        for value in range(5):
            ring.upload(([value] * 3000,)).tensor()
    found = {(hazard.code, hazard.trouble) for hazard in watch.hazards()}
    assert found == ({("DSV203", "overwritten")} if fault else set())


@pytest.mark.parametrize(
    ("faults", "changes", "code"),
    [
        (
            ("freed_staging",),
            {"plan_on": "host", "overlap": False, "graphs": False, "exact_num_tokens": True},
            "DSV203",
        ),
        (("no_war_barrier",), {"exact_num_tokens": True}, "DSV204"),
    ],
    ids=["freed_staging", "no_war_barrier"],
)
def test_a_fault_of_the_engine_is_found(faults, changes, code):
    run = msgspec.structs.replace(ENGINE, faults=faults, **changes)
    watch, _ = watch_engine(HazardSpec(run=run, steps=40, gpu=True))
    assert code in {hazard.code for hazard in watch.hazards()}
    assert {hazard.code for hazard in watch.hazards()} <= {code, "DSV206"}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"exact_num_tokens": True},
        {"plan_on": "host", "overlap": False},
        {"graphs": False, "exact_num_tokens": True},
    ],
    ids=["as by default", "exact totals", "host plans", "no graphs"],
)
def test_the_clean_engine_has_none(changes):
    run = msgspec.structs.replace(ENGINE, **changes)
    watch, failure = watch_engine(HazardSpec(run=run, steps=100, gpu=True))
    assert not failure and not watch.hazards()


@pytest.mark.slow
def test_the_clean_engine_has_none_over_1000_steps():
    run = msgspec.structs.replace(ENGINE, exact_num_tokens=True)
    watch, failure = watch_engine(HazardSpec(run=run, steps=1000, gpu=True))
    assert not failure and not watch.hazards()


def test_a_padded_size_is_told_out_of_a_process_that_it_ends():
    """A device-side assertion ends the context: the sum has reached the host before."""
    done = subprocess.run(
        [sys.executable, "-m", "dsv4prof", "hazards", "--faults", "padded_output_size", "--exact-num-tokens",
         "--steps", "4", "--threads", "1", "--no-graphs", "--format", "json"],
        capture_output=True, text=True, timeout=300, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    report = json.loads(done.stdout)
    assert done.returncode == 1 and report["ended"]
    assert "DSV201" in {finding["code"] for finding in report["findings"]}


def test_an_exact_size_is_compared_without_a_wait():
    lens = torch.tensor([3, 1, 4], device="cuda")
    torch.cuda.synchronize()
    with HazardWatch(gpu=True) as watch:
        torch.cuda._sleep(BUSY_CYCLES)
        torch.repeat_interleave(lens, output_size=8)
        still_busy = not torch.cuda.current_stream().query()
    assert still_busy and watch.tracker.contracts.checked == 1 and not watch.hazards()


def test_a_plan_that_changes_before_its_use():
    with HazardWatch(gpu=True) as watch:
        plan = {"rows": torch.arange(64, device="cuda")}
        guard_plan("verify", plan)
        check_plan("verify", plan)
        plan["rows"][3:5] = 0
        check_plan("verify", plan)
    (hazard,) = watch.hazards()
    assert (hazard.code, hazard.facts["plan"]) == ("DSV206", "verify")


def test_a_captured_graph_is_work_of_its_replays():
    x, y = torch.zeros(256, device="cuda"), torch.zeros(256, device="cuda")
    side = torch.cuda.Stream()
    with HazardWatch(gpu=True) as watch:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y.copy_(x * 2)
        graph.replay()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            y.clone()
        assert not watch.hazards()
        graph.replay()
    (hazard,) = watch.hazards()
    assert (hazard.trouble, hazard.second.op) == ("write-after-read", "a graph's replay")
