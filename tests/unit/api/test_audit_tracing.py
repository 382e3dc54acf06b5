"""`audit trace`: the ranked list of recorded traces, checked against numbers read from the raw files by other means."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from dsv4prof.api import audit_trace
from dsv4prof.errors import InputError, UsageError
from dsv4prof.report.text import render_text
from traces import call, document, kernel, op, write

SAMPLES = Path(__file__).parents[3] / "traces" / "samples"


def _raw(path: Path) -> list[dict[str, Any]]:
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    return [event for event in events if event.get("ph") == "X"]


def _calls(events: list[dict[str, Any]], *names: str) -> list[dict[str, Any]]:
    return [event for event in events if event["name"] in names and event.get("cat") == "cuda_runtime"]


def test_the_blocking_copy_of_a_rocm_decode_is_first_and_nearly_the_whole_trace(shared: Path) -> None:
    path = shared / "traces" / "mi300x_sglang_decode_hipgraph.json.gz"
    events = _raw(path)
    (copy,) = _calls(events, "hipMemcpyWithStream")
    length = max(e["ts"] + e["dur"] for e in events) - min(e["ts"] for e in events)
    report = audit_trace([str(path)])
    (row,) = report.sections[0].rows
    assert row["code"] == "DSV103"
    assert row["blocked_ns"] == pytest.approx(copy["dur"] * 1e3, abs=1)
    assert copy["dur"] / length > 0.97
    assert any(f"{100 * copy['dur'] / length:.1f} % of the recorded time" in note for note in report.notes)
    # By hand: the device's last work before the copy's end, to the first work that the graph launch after it starts.
    device = sorted(
        (e for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")), key=lambda e: e["ts"]
    )
    end = copy["ts"] + copy["dur"]
    idle = min(e["ts"] for e in device if e["ts"] > end) - max(e["ts"] + e["dur"] for e in device if e["ts"] < end)
    assert isinstance(row["idle_ns"], int)
    assert 0.5 * idle * 1e3 <= row["idle_ns"] <= idle * 1e3


def test_every_wait_of_the_h200_pair_is_in_one_site(tmp_path: Path) -> None:
    paths = sorted((SAMPLES / "h200_tp2_before").glob("*.json.gz"))
    waits = [e for path in paths for e in _calls(_raw(path), "cudaStreamSynchronize", "cudaEventSynchronize")]
    report = audit_trace([str(path) for path in paths])
    seen: dict[str, int] = {}
    for finding in report.findings:
        for name, count in finding.evidence.get("runtime_calls", {}).items():
            seen[name] = seen.get(name, 0) + count
    assert waits
    assert sum(seen[name] for name in ("cudaStreamSynchronize", "cudaEventSynchronize")) == len(waits)
    blocked = sum(finding.evidence.get("blocked_ns", 0) for finding in report.findings)
    assert blocked >= sum(e["dur"] for e in waits) * 1e3 - len(waits)
    idle = [row["idle_ns"] or 0 for row in report.sections[0].rows if "in all" not in str(row["times"])]
    assert idle == sorted(idle, reverse=True)


def test_the_known_wait_of_a_vllm_step_is_intended(shared: Path) -> None:
    report = audit_trace([str(shared / "traces" / "rocm70_vllm_decode_fullgraph.json.gz")])
    assert [section.key for section in report.sections] == ["intended"]
    assert report.data["sites"] == 0
    assert "no sync that is not intended" in render_text(report)


def _waiting(folder: Path) -> Path:
    events = [
        kernel("gemm", 10, 80, 1),
        call("cudaLaunchKernel", 0, 5, 1),
        op("aten::item", 20, 80),
        op("aten::_local_scalar_dense", 21, 78),
        call("cudaStreamSynchronize", 22, 70, 2),
    ]
    return write(folder / "rank0.json", document(events, rank=0, world=1))


def test_findings_decide_the_status_and_an_allowance_takes_one_out(tmp_path: Path) -> None:
    path = str(_waiting(tmp_path))
    assert audit_trace([path], fail_on="warning").verdict.exit_code == 1
    allowed = audit_trace([path], allow="DSV101@item*: x", fail_on="warning")
    assert allowed.verdict.exit_code == 1, "the allowance names no place of this sync"
    text = render_text(audit_trace([path]))
    assert "aten::item > aten::_local_scalar_dense" in text
    assert text.count("scalar read by") == 1, "the table has it, no second list"


def test_a_trace_without_a_device_claims_no_cost(tmp_path: Path) -> None:
    events = [op("aten::item", 0, 5), op("aten::_local_scalar_dense", 1, 3)]
    report = audit_trace([str(write(tmp_path / "rank0.json", document(events, rank=0, world=1)))])
    (section,) = report.sections
    assert not {"idle_ns", "blocked_ns", "lost_ns"} & {column.key for column in section.columns}
    assert "nothing blocks here" in (section.note or "")


def test_bad_input_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError):
        audit_trace([str(tmp_path / "absent.json")])
    with pytest.raises(UsageError, match="no reason"):
        audit_trace([str(_waiting(tmp_path))], allow="DSV101@x=1")


@pytest.mark.parametrize(
    ("name", "wait"),
    [
        ("h100_qwen05b_memory_events", "cudaDeviceSynchronize"),
        ("mi300x_qwen05b_memory_events", "hipDeviceSynchronize"),
    ],
)
def test_the_waits_of_two_more_recordings_are_those_of_their_files(shared: Path, name: str, wait: str) -> None:
    path = shared / "traces" / f"{name}.json.gz"
    events = _raw(path)
    # The profiler's own wait, at its stop, comes last.
    first, _ = sorted(_calls(events, wait), key=lambda e: e["ts"])
    (read,) = (e for e in _calls(events, "cudaStreamSynchronize", "hipMemcpyWithStream"))
    rows = audit_trace([str(path)]).sections[0].rows
    assert [row["code"] for row in rows] == ["DSV106", "DSV107"]
    for row, raw in zip(rows, (first, read), strict=True):
        assert row["blocked_ns"] == pytest.approx(raw["dur"] * 1e3, abs=1)
        # By hand: from the end of what was waited for, the call's own copy included, to the next work.
        end = raw["ts"] + raw["dur"]
        device = [e for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
        own = raw["args"]["correlation"]
        waited = [e for e in device if e["ts"] + e["dur"] < end or e["args"]["correlation"] == own]
        last = max(e["ts"] + e["dur"] for e in waited)
        idle = min(e["ts"] for e in device if e["ts"] > max(end, last)) - last
        assert isinstance(row["idle_ns"], int)
        assert 0.9 * idle * 1e3 <= row["idle_ns"] <= idle * 1e3


def test_idle_time_is_unknown_where_launches_have_no_record(tmp_path: Path) -> None:
    events = [
        kernel("gemm", 10, 80, 1),
        call("cudaLaunchKernel", 0, 5, 1),
        call("cudaStreamSynchronize", 22, 70, 2),
        *(call("cudaLaunchKernel", 100 + 10 * each, 5, 10 + each) for each in range(5)),
        kernel("gemm", 160, 5, 14),
    ]
    report = audit_trace([str(write(tmp_path / "rank0.json", document(events, rank=0, world=1)))])
    (row,) = report.sections[0].rows
    assert row["idle_ns"] is None
    assert row["blocked_ns"] == 70_000
    assert any("2 of 6 launches (33 %) have a device record" in note for note in report.notes)


def test_an_allowance_of_nothing_is_told(tmp_path: Path) -> None:
    report = audit_trace([str(_waiting(tmp_path))], allow="DSV101@renamed = 2 : it was meant")
    assert "the allowance DSV101@renamed speaks of no sync of this trace" in report.notes
