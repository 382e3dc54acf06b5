"""On a GPU: an index out of range is named with its buffer, a hang with its kernel, without a device synchronize."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="the engine extra is not installed")

from dsv4prof.api.fault_record import fault_show
from dsv4prof.faultrecord.reader import read_fault_record
from dsv4prof.report import render

pytestmark = pytest.mark.gpu
CHILD = Path(__file__).parents[2] / "support" / "fault_gpu_child.py"
ROOT = Path(__file__).parents[3]


def run(
    folder: Path, how: str, **environment: str
) -> tuple[dict[str, Any], list[Any], subprocess.CompletedProcess[str]]:
    path = os.pathsep.join([str(ROOT), str(ROOT / "engine"), os.environ.get("PYTHONPATH", "")])
    child = subprocess.run(
        [sys.executable, str(CHILD), str(folder), how], capture_output=True, text=True, timeout=240, check=False,
        env={**os.environ, "PYTHONPATH": path, **environment},
    )  # fmt: skip
    (folder / "rank0.log").write_text(child.stderr)
    report = fault_show(str(folder))
    said = render(report, "text", color=False)
    print(f"\n--- {how} {environment}: status {child.returncode}\n{child.stderr[-1500:]}\n{said[:6000]}")
    keep = os.environ.get("OUT")
    if keep:
        (Path(keep) / f"{how}{'-'.join(environment)}.txt").write_text(f"{child.stderr[-4000:]}\n{said}")
    assert child.returncode != 0, child.stderr[-3000:]
    assert report.verdict.exit_code == 1
    return report.data["ranks"][0], list(report.findings), child


def test_an_index_out_of_range_is_named_with_its_buffer(tmp_path: Path) -> None:
    rank, findings, _ = run(tmp_path, "assert")
    assert findings[0].code == "DSV802"
    first = rank["suspects"][0]
    assert first["name"].startswith("aten::index_select")
    assert (first["step"], first["phase"]) == (19, "draft")
    assert [each["what"] for each in first["touches"]] == ["self float32[1000, 64]", "index int64[8]"]


def test_completion_is_followed_without_a_synchronize(tmp_path: Path) -> None:
    run(tmp_path, "assert")
    record = read_fault_record(tmp_path / "rank0.faultring")
    assert record.follows_device
    assert record.streams
    launches = [each.number for each in record.launches if each.kind.launches]
    assert 0 < record.streams[0].done < launches[-1]
    assert sum(number > record.streams[0].done for number in launches) < 120, "markers lie 32 launches apart"


def test_a_triton_kernel_that_reads_far_out_is_the_first_suspect(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    rank, findings, _ = run(tmp_path, "triton")
    assert findings[0].code == "DSV801"
    assert rank["suspects"][0]["name"] == "read_rows"
    assert rank["suspects"][0]["touches"][0]["what"] == "table float32[1000, 64]"
    assert any("CUDA_LAUNCH_BLOCKING=1" in (finding.fix or "") for finding in findings)


def test_the_rerun_leaves_one(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    rank, _, _ = run(tmp_path, "triton", CUDA_LAUNCH_BLOCKING="1")
    assert rank["suspects"][0]["name"] == "read_rows"


def test_a_replay_is_named_with_the_operator_captured_in_it(tmp_path: Path) -> None:
    rank, findings, _ = run(tmp_path, "graph")
    assert findings[0].code == "DSV802"
    first = rank["suspects"][0]
    assert first["kind"] == "graph"
    assert "indexSelect" in " ".join(first["evidence"]) or "gather" in " ".join(first["evidence"])


def test_a_kernel_that_never_ends(tmp_path: Path) -> None:
    pytest.importorskip("triton")
    began = time.monotonic()
    rank, _, child = run(tmp_path, "hang")
    assert time.monotonic() - began < 120
    assert child.returncode == 3
    assert rank["suspects"][0]["name"] == "wait_for_flag"
    assert rank["stacks"], "every thread said where it was"
    assert any(frame["function"] == "main" for stack in rank["stacks"] for frame in stack["frames"])
