"""Real recordings: what their makers know of them is what the tools say."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from dsv4prof.api import analyze, merge

SAMPLES = Path(__file__).resolve().parents[3] / "traces" / "samples"


def reads(name: str) -> dict[str, dict[str, Any]]:
    found = analyze([str(SAMPLES / name)]).data["host_reads"]
    return {read["code"]: read for read in found if not read["outside_steps"]}


def test_before_the_builder_reads_and_after_it_does_not() -> None:
    before, after = reads("h200_tp2_before"), reads("h200_tp2_after")
    assert before["DSV105"]["function"] == "attach_prefill_meta"
    assert before["DSV105"]["reads_per_call"] == 2
    assert before["DSV105"]["cost_ns"] > 1_000
    assert "DSV101" in before
    assert not {"DSV101", "DSV105"} & set(after)


def eager_phases(name: str) -> list[str]:
    return [found.evidence["phase"] for found in analyze([str(SAMPLES / name)]).findings if found.code == "DSV301"]


def test_draft_extend_is_eager_before_and_captured_after() -> None:
    assert eager_phases("h200_tp2_before") == ["draft_extend"]
    assert eager_phases("h200_tp2_after") == []


def test_a_cpu_recording_claims_no_stall() -> None:
    (read,) = reads("gloo_4rank_cpu").values()
    assert read["reads_per_step"] == 1
    assert read["cost_ns"] is None


@pytest.mark.parametrize(
    ("name", "residual_ns"), [("h200_tp2_before", 2_000), ("h200_tp2_after", 2_000), ("gloo_4rank_cpu", 1_000_000)]
)
def test_every_slice_reaches_the_merged_file(tmp_path: Path, name: str, residual_ns: int) -> None:
    files = sorted((SAMPLES / name).iterdir())
    raw = [json.loads(gzip.decompress(path.read_bytes()))["traceEvents"] for path in files]
    report = merge([str(SAMPLES / name)], output=tmp_path / "merged.json.gz", check=True)
    assert report.verdict.exit_code == 0
    ranks = report.data["ranks"]
    assert [rank["slices"] for rank in ranks] == [sum(event["ph"] == "X" for event in events) for events in raw]
    check = report.data["check"]
    assert check["slices_in"] == check["slices_out"] == sum(rank["slices"] for rank in ranks)
    assert check["duplicate_flows"] == 0
    assert max(rank["clock"]["residual_ns"] for rank in ranks[1:]) < residual_ns
