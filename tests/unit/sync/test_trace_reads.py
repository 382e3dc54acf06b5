"""Host reads in traces: what is one, what is none, where, how often and at which cost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dsv4prof.model.finding import Finding, Severity
from dsv4prof.sync.trace import CPU_REASON, host_reads
from traces import Event, call, frame, kernel, launched_rank, merged, note, op, x

STEP = "dsv4.step#{} kind=decode requests=2 rows=8"


def _reads(tmp_path: Path, *ranks: list[Event]) -> list[Finding]:
    return host_reads(merged(tmp_path, *ranks))


def _one(tmp_path: Path, *events: Event) -> Finding:
    (finding,) = _reads(tmp_path, list(events))
    return finding


def _item(at: float, dur: float = 2) -> list[Event]:
    return [op("aten::item", at, dur), op("aten::_local_scalar_dense", at + 0.1, dur - 0.2)]


def _repeat_interleave(at: float, *, exact: bool = False) -> list[Event]:
    """As torch 2.13 records it on a CPU: two reads a call, none with output_size."""
    reads = [] if exact else [*_item(at + 3), *_item(at + 6)]
    return [op("aten::repeat_interleave", at, 20), op("aten::repeat_interleave", at + 1, 15), *reads]


def _builder_step(n: int, *, exact: bool = False) -> list[Event]:
    at = n * 1000
    return [
        note(STEP.format(n), at, 900),
        note("dsv4.phase draft_extend requests=2 rows=8 graph=eager", at + 100, 500),
        frame("dsv4_engine/attention/metadata.py(70): attach_prefill_meta", at + 150, 200),
        note("dsv4.span attach_prefill_meta", at + 160, 150),
        frame("<built-in method repeat_interleave of Tensor object at 0x7f>", at + 165, 100),
        *_repeat_interleave(at + 170, exact=exact),
    ]


def test_cpu_repeat_interleave_is_two_reads_a_call_of_its_builder(tmp_path: Path) -> None:
    finding = _one(tmp_path, *_builder_step(0), *_builder_step(1))
    assert (finding.code, finding.severity) == ("DSV105", Severity.WARNING)
    assert finding.message == "repeat_interleave without output_size: 2 host reads a call"
    assert (finding.cost_ns, finding.cost_reason) == (None, CPU_REASON)
    assert finding.location is not None
    assert (finding.location.file, finding.location.line) == ("dsv4_engine/attention/metadata.py", None)
    assert finding.location.function == "attach_prefill_meta"
    evidence = finding.evidence
    assert (evidence["reads"], evidence["calls"], evidence["per_step"], evidence["steps"]) == (4, 2, 2.0, 2)
    assert evidence["ops"] == ["aten::repeat_interleave", "aten::item", "aten::_local_scalar_dense"]
    assert (evidence["region"], evidence["def_line"]) == ("attach_prefill_meta", 70)
    assert evidence["phases"] == {"draft_extend": 4}


def test_cpu_repeat_interleave_with_output_size_is_none(tmp_path: Path) -> None:
    assert _reads(tmp_path, _builder_step(0, exact=True)) == []


def test_counts_a_step_do_not_grow_with_the_ranks(tmp_path: Path) -> None:
    (finding,) = _reads(tmp_path, _builder_step(0), _builder_step(0))
    assert (finding.evidence["reads"], finding.evidence["per_step"], finding.evidence["ranks"]) == (4, 2.0, [0, 1])


@pytest.mark.parametrize(
    ("ops", "code", "reads"),
    [
        (["aten::nonzero"], "DSV105", 1),
        (["aten::index", "aten::nonzero"], "DSV105", 1),
        (["aten::where", "aten::nonzero_numpy", "aten::nonzero"], "DSV105", 1),
        (["aten::masked_select", "aten::item", "aten::_local_scalar_dense"], "DSV105", 1),
        (["aten::_unique2"], "DSV105", 1),
        (["aten::bincount"], "DSV105", 2),
        (["aten::is_nonzero", "aten::item", "aten::_local_scalar_dense"], "DSV107", 1),
        (["aten::equal"], "DSV107", 1),
        (["aten::allclose", "aten::item", "aten::_local_scalar_dense"], "DSV107", 1),
        (["aten::item", "aten::_local_scalar_dense"], "DSV101", 1),
        (["aten::masked_fill", "aten::masked_fill_", "aten::item", "aten::_local_scalar_dense"], "DSV101", 1),
    ],
)
def test_cpu_operators_that_would_read(tmp_path: Path, ops: list[str], code: str, reads: int) -> None:
    finding = _one(tmp_path, *(op(name, n, 100 - 2 * n) for n, name in enumerate(ops)))
    assert (finding.code, finding.evidence["reads"]) == (code, reads)
    assert finding.evidence["ops"] == (ops[:1] if ops[0] == "aten::masked_select" else ops)
    assert finding.fix


@pytest.mark.parametrize(
    "ops",
    [
        ["aten::multinomial", "aten::_assert_async", "aten::item", "aten::_local_scalar_dense"],
        ["aten::linalg_lu_solve", "aten::item", "aten::_local_scalar_dense"],
        ["aten::index"],
        ["aten::to", "aten::_to_copy", "aten::copy_"],
        ["aten::repeat_interleave", "aten::repeat_interleave"],
        ["aten::lift_fresh"],
        ["aten::topk"],
        ["aten::full", "aten::fill_"],
    ],
)
def test_cpu_operators_that_would_not_read(tmp_path: Path, ops: list[str]) -> None:
    assert _reads(tmp_path, [op(name, n, 100 - 2 * n) for n, name in enumerate(ops)]) == []


def test_an_upload_from_a_list_is_only_possible(tmp_path: Path) -> None:
    finding = _one(tmp_path, op("aten::empty", 0, 1), op("aten::to", 2, 1), op("aten::lift_fresh", 4, 1))
    assert (finding.code, finding.severity, finding.evidence["certainty"]) == ("DSV108", Severity.NOTE, "possible")


def test_reads_outside_steps_are_marked_and_last(tmp_path: Path) -> None:
    inside, outside = _reads(tmp_path, [note(STEP.format(0), 0, 100), *_item(10), *_item(200), *_item(210)])
    assert (inside.evidence["outside_steps"], outside.evidence["outside_steps"]) == (False, True)
    assert outside.severity is Severity.NOTE
    assert outside.message.endswith("(outside a step)")
    assert outside.evidence["per_step"] is None


def test_torch_and_library_frames_are_passed_over(tmp_path: Path) -> None:
    frames = [
        "server.py(5): serve",
        "/opt/sglang/python/sglang/worker.py(7): work",
        "threading.py(1): run",
        "/usr/lib/python3.11/contextlib.py(3): inner",
        "torch/_tensor.py(4): wrapped",
        "/venv/lib/python3.11/site-packages/torch/x.py(2): y",
        "<string>(2): __init__",
    ]
    finding = _one(tmp_path, *(frame(name, n, 100 - 2 * n) for n, name in enumerate(frames)), *_item(40))
    assert finding.location is not None
    assert (finding.location.file, finding.location.function) == ("/opt/sglang/python/sglang/worker.py", "work")


def _rocm_item(at: float, blocked: float, correlation: int) -> list[Event]:
    return [
        op("aten::item", at, blocked + 4),
        op("aten::_local_scalar_dense", at + 1, blocked + 2),
        call("hipMemcpyWithStream", at + 2, blocked, correlation),
        x("Memcpy DtoH (Device -> Host)", "gpu_memcpy", at + blocked - 1, 2, pid=0, tid=0, correlation=correlation),
    ]


def _launch(at: float, correlation: int, starts: float, dur: float = 10) -> list[Event]:
    return [call("hipLaunchKernel", at, 3, correlation), kernel(f"k{correlation}", starts, dur, correlation, tid=0)]


def test_rocm_reads_cost_what_they_block_and_the_device_idles_after(tmp_path: Path) -> None:
    events = [
        note(STEP.format(0), 0, 1000),
        *_launch(1, 1, 5, 300),
        *_rocm_item(10, 300, 2),
        *_launch(400, 3, 405),
        *_launch(410, 4, 416),
        note(STEP.format(1), 1000, 900),
    ]
    finding = _one(tmp_path, *events)
    assert (finding.code, finding.cost_ns) == ("DSV101", 150_000)
    evidence = finding.evidence
    assert evidence["runtime_calls"] == {"hipMemcpyWithStream": 1}
    assert evidence["blocked_ns"] == 300_000
    # The copy ends at 311 us, the next kernel starts at 405; the usual gap is the median of 4, 94 and 1 us.
    assert evidence["gpu_idle_ns"] == 94_000 - 4_000
    assert finding.span is not None
    assert (finding.span.name, finding.span.dur_ns) == ("hipMemcpyWithStream", 300_000)


def test_cuda_copy_and_synchronize_of_one_operator_are_one_read(tmp_path: Path) -> None:
    events = [
        op("aten::item", 0, 100),
        op("aten::_local_scalar_dense", 1, 98),
        call("cudaMemcpyAsync", 2, 60, 5),
        call("cudaStreamSynchronize", 65, 30),
        x("Memcpy DtoH (Device -> Pageable)", "gpu_memcpy", 50, 1, pid=0, tid=7, correlation=5),
    ]
    finding = _one(tmp_path, *events)
    assert (finding.evidence["reads"], finding.cost_ns) == (1, 90_000)
    assert finding.evidence["runtime_calls"] == {"cudaMemcpyAsync": 1, "cudaStreamSynchronize": 1}


@pytest.mark.parametrize("in_operator", [True, False])
@pytest.mark.parametrize(
    ("outer", "inner", "category"),
    [
        ("cudaMemcpyAsync", "cudaStreamSynchronize", "cuda_runtime"),
        ("cudaStreamSynchronize", "cuStreamSynchronize", "cuda_driver"),
        ("hipMemcpyWithStream", "hipStreamSynchronize", "cuda_runtime"),
    ],
)
@pytest.mark.parametrize("inner_dur", [390, 400, 400.5])
def test_a_wait_inside_a_wait_is_the_same_time(
    tmp_path: Path, outer: str, inner: str, category: str, inner_dur: float, in_operator: bool
) -> None:
    events = [
        note(STEP.format(0), 0, 1000),
        *([op("aten::item", 90, 450), op("aten::_local_scalar_dense", 95, 430)] if in_operator else []),
        call(outer, 100, 400, 5),
        x(inner, category, 100 if inner_dur == 400 else 105, inner_dur),
        x("Memcpy DtoH (Device -> Pageable)", "gpu_memcpy", 480, 1, pid=0, tid=7, correlation=5),
        *_launch(600, 8, 610),
        *_launch(615, 9, 622),
        *_launch(625, 10, 634),
    ]
    finding = _one(tmp_path, *events)
    union = 405_500 if inner_dur == 400.5 else 400_000
    assert (finding.evidence["reads"], finding.evidence["per_call"], finding.cost_ns) == (1, 1, union)
    assert finding.evidence["gpu_idle_ns"] == 610_000 - 481_000 - 2_000
    assert finding.evidence["runtime_calls"] == {outer: 1}


@pytest.mark.parametrize(
    ("ops", "gpu_copy", "code"),
    [
        (["aten::to", "aten::_to_copy", "aten::copy_"], "Memcpy DtoH (Device -> Host)", "DSV103"),
        (["aten::to", "aten::_to_copy", "aten::copy_"], "Memcpy HtoD (Host -> Device)", "DSV108"),
        (["aten::index", "aten::to", "aten::copy_"], "Memcpy HtoD (Host -> Device)", "DSV108"),
        (["aten::index", "aten::nonzero"], "Memcpy DtoH (Device -> Host)", "DSV105"),
    ],
)
def test_the_direction_of_the_copy_decides(tmp_path: Path, ops: list[str], gpu_copy: str, code: str) -> None:
    events = [op(name, n, 100 - 2 * n) for n, name in enumerate(ops)]
    finding = _one(
        tmp_path,
        *events,
        call("hipMemcpyWithStream", 20, 40, 9),
        x(gpu_copy, "gpu_memcpy", 50, 1, pid=0, tid=0, correlation=9),
    )
    assert finding.code == code


@pytest.mark.parametrize("name", ["cudaStreamSynchronize", "hipEventSynchronize", "hipDeviceSynchronize"])
def test_waiting_on_purpose_is_found_without_an_operator(tmp_path: Path, name: str) -> None:
    events = [*launched_rank(100, 10), note(STEP.format(0), 0, 1000), call(name, 200, 50), *_launch(600, 8, 610)]
    (finding,) = _reads(tmp_path, events)
    assert (finding.code, finding.evidence["ops"]) == ("DSV106", [])


def test_what_does_not_wait_is_left_out(tmp_path: Path) -> None:
    events = [
        note(STEP.format(0), 0, 1000),
        call("cudaEventQuery", 100, 50),
        call("cudaStreamQuery", 160, 50),
        call("cudaStreamWaitEvent", 220, 50),
        x("Stream Wait Event", "cuda_sync", 300, 50, pid=0, tid=7),
        *_launch(400, 1, 405),
        call("cudaMemcpyAsync", 500, 2, 2),
        x("Memcpy DtoH (Device -> Pageable)", "gpu_memcpy", 505, 1, pid=0, tid=7, correlation=2),
        call("cudaMemcpyAsync", 520, 90, 3),
        x("Memcpy DtoH (Device -> Pinned)", "gpu_memcpy", 530, 1, pid=0, tid=7, correlation=3),
    ]
    assert _reads(tmp_path, events) == []


def test_the_profilers_own_waits_are_left_out(tmp_path: Path) -> None:
    events = [
        call("cudaDeviceSynchronize", 0, 50),
        note(STEP.format(0), 100, 500),
        *_launch(110, 1, 120),
        call("cudaDeviceSynchronize", 200, 50),
        *_launch(300, 2, 310),
        call("cudaDeviceSynchronize", 800, 50),
    ]
    finding = _one(tmp_path, *events)
    assert finding.evidence["reads"] == 1
    assert finding.span is not None
    assert finding.evidence["outside_steps"] is False


def test_sites_are_ordered_by_cost_and_told_apart_by_function(tmp_path: Path) -> None:
    def site(name: str, at: float, blocked: float, n: int) -> list[Event]:
        return [frame(f"model.py({n}): {name}", at, blocked + 20), *_rocm_item(at + 5, blocked, n)]

    found = _reads(tmp_path, [*site("cheap", 400, 30, 1), *site("cheap", 480, 40, 1), *site("dear", 0, 300, 2)])
    assert [(f.location.function if f.location else None, f.cost_ns) for f in found] == [
        ("dear", 300_000),
        ("cheap", 70_000),
    ]
    assert len({f.fingerprint for f in found}) == 2


def test_a_mean_that_one_wait_decides_says_so(tmp_path: Path) -> None:
    events = [event for n in range(5) for event in _rocm_item(n * 2000, 1000 if n == 0 else 10, n + 1)]
    hint = "; few long waits decide the cost: median 0.010 ms, mean 0.208 ms"
    assert hint in _one(tmp_path, *events).message
    assert hint in _reads(tmp_path, events, events, events)[0].message
    even = [event for n in range(5) for event in _rocm_item(n * 2000, 500 + 100 * n, n + 1)]
    assert "decide" not in _one(tmp_path, *even).message


def test_sites_are_ordered_by_the_idle_time_that_follows(tmp_path: Path) -> None:
    long = [frame("model.py(1): long", 90, 420), *_launch(92, 1, 95, 395), *_rocm_item(100, 390, 2)]
    short = [frame("model.py(2): short", 590, 120), *_launch(592, 4, 595, 12), *_rocm_item(600, 20, 5)]
    gaps = [event for n in range(8) for event in _launch(1000 + 10 * n, 20 + n, 1001 + 10 * n, 9)]
    events = [*long, *_launch(510, 3, 512), *short, *gaps, note(STEP.format(0), 0, 2000)]
    found = _reads(tmp_path, events)
    assert [f.location.function if f.location else None for f in found] == ["short", "long"]
    assert [f.cost_ns for f in found] == [20_000, 390_000]
    assert found[0].evidence["gpu_idle_per_step_ns"] > found[1].evidence["gpu_idle_per_step_ns"] > 0


@pytest.mark.parametrize(("operator", "where"), [("aten::empty", " in aten::empty"), ("aten::to", " in aten::to")])
def test_a_stalling_allocation_names_its_operator(tmp_path: Path, operator: str, where: str) -> None:
    finding = _one(tmp_path, op(operator, 0, 900), call("hipMalloc", 10, 400), call("hipFree", 420, 400))
    assert (finding.code, finding.message) == ("DSV111", "allocation call that stalls" + where)


def test_uploads_are_not_called_reads(tmp_path: Path) -> None:
    copies = [
        event
        for n in (1, 2)
        for event in (
            call("hipMemcpyWithStream", 100 * n, 40, n),
            x("Memcpy HtoD (Host -> Device)", "gpu_memcpy", 100 * n + 30, 1, pid=0, tid=0, correlation=n),
        )
    ]
    inner = [op("aten::copy_", 100 * n - 5, 60) for n in (1, 2)]
    finding = _one(tmp_path, op("aten::where", 0, 300), *inner, *copies)
    assert finding.message == "blocking upload from the host: 2 uploads a call"


def test_the_fingerprint_ignores_times_and_lines(tmp_path: Path) -> None:
    def run(shift: int, line: int) -> list[Event]:
        return [frame(f"m.py({line}): f", shift, 90), *_item(shift + 10)]

    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    first, second = _one(tmp_path / "a", *run(0, 5)), _one(tmp_path / "b", *run(777, 9))
    assert first.fingerprint == second.fingerprint


def _shared_findings(shared: Path, pattern: str) -> list[Finding]:
    from dsv4prof.trace.merge import load_ranks, merge

    return host_reads(merge(load_ranks(sorted((shared / "traces").glob(pattern)))))


def test_real_nvidia_set_before_and_after_the_fix(shared: Path) -> None:
    before = {
        f.evidence["function"]: f for f in _shared_findings(shared, "h200_2rank_tp2/before-*") if f.code == "DSV105"
    }
    found = before["attach_prefill_meta"]
    assert (found.evidence["per_call"], found.evidence["per_step"]) == (2.0, 2.0)
    assert found.cost_ns is not None
    assert found.cost_ns > 0
    assert found.evidence["gpu_idle_per_step_ns"] > 0
    assert not [f for f in _shared_findings(shared, "h200_2rank_tp2/after-*") if f.code != "DSV106"]


def test_real_amd_trace_blocks_in_one_copy(shared: Path) -> None:
    (found,) = _shared_findings(shared, "mi300x_sglang_decode_hipgraph*")
    assert (found.code, found.cost_ns) == ("DSV103", 463_063_750)
    assert found.location is not None
    assert found.location.function == "populate_from_forward_batch"


def test_case_of_the_hidden_read(shared: Path) -> None:
    from dsv4prof.trace.load import load_rank
    from dsv4prof.trace.merge import merge

    trace = merge([load_rank(shared / "cases" / "36-repeat-interleave-hidden-sync" / "trace.json")])
    (found,) = host_reads(trace)
    facts: dict[str, Any] = found.evidence
    assert (found.code, found.cost_ns, facts["reads"], facts["region"]) == (
        "DSV105",
        290_000,
        1,
        "draft_extend metadata",
    )
