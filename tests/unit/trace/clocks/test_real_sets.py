"""Recorded sets and sets made from recorded ranks. Skipped where the reference material is absent."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dsv4prof.trace.clocks import Align, Alignment, align, collect, is_candidate
from dsv4prof.trace.load import load_rank


def aligned(paths: list[Path], mode: Align = Align.AUTO) -> Alignment:
    ranks = []
    for path in paths:
        trace = load_rank(path)
        slices = [one for one in trace.slices if is_candidate(one.name, one.category)]
        first = min(one.start_ns for one in trace.slices if isinstance(one.track.pid, int))
        ranks.append(collect(slices, trace.coordinates, trace.metadata, start_ns=first))
    return align(ranks, mode)


@pytest.mark.parametrize(
    ("pattern", "limit_ns", "matches", "stragglers"),
    [
        ("h200_2rank_tp2/after-*", 2_000, 144, [1]),
        ("h200_4rank_tp4/after-*", 2_000, 288, [2]),
        ("h200_4rank_tp4/before-*", 2_000, 288, [2]),
        ("dlrm_v100_8rank_nccl/*", 10_000, 8, []),
        # Threads of a loaded CPU; rank 2 sleeps before each all_reduce.
        ("torch213_gloo_4rank_cpu/*", 500_000, 9, [2]),
    ],
)
def test_residual_matches_and_stragglers_of_recorded_sets(shared, pattern, limit_ns, matches, stragglers):
    folder, names = pattern.split("/")
    files = (shared / "traces" / folder).glob(names)
    found = aligned(sorted(path for path in files if not path.name.startswith("merged")))
    assert max(fit.residual_ns for fit in found.clocks) <= limit_ns
    assert min(fit.matches for fit in found.clocks) >= matches
    assert [one.rank for one in found.stragglers] == stragglers
    assert max(abs(fit.offset_ns) for fit in found.clocks) <= 1_000
    assert not any(fit.drift_ppm for fit in found.clocks)


def test_samples_are_not_matched(shared):
    found = aligned(sorted((shared / "traces" / "hta_sampled_2of128").glob("*.json.gz")))
    assert [(fit.offset_ns, fit.residual_ns) for fit in found.clocks] == [(0, None), (0, None)]
    assert found.stragglers == []


BASES = {"mi300": "mi300x_rccl_pystacks.rank0of8.json.gz", "h200": "h200_4rank_tp4/after-TP-0.trace.json.gz"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("base", "options"),
    [
        ("mi300", ["--reps", "1"]),
        ("mi300", ["--reps", "8", "--jitter-us", "1.5", "--drop-collective", "2:7", "--seed", "3"]),
        ("h200", ["--reps", "4", "--nodes", "4", "--drop-collective", "0:30"]),
        ("h200", ["--reps", "4", "--jitter-us", "1.5", "--straggler", "-1"]),
    ],
)
def test_made_sets_give_back_what_they_were_made_with(shared, tmp_path, base, options):
    pytest.importorskip("orjson")
    pytest.importorskip("zlib_ng")
    tool = shared / "tools" / "make_rank_set.py"
    command = [sys.executable, str(tool), str(shared / "traces" / BASES[base]), str(tmp_path), "--ranks", "8", *options]
    subprocess.run(command, check=True, capture_output=True)
    truth = json.loads((tmp_path / "truth.json").read_text())
    found = aligned([tmp_path / one["file"] for one in truth["ranks"].values()])
    for fit in found.clocks:
        known = truth["ranks"][str(fit.rank)]
        assert abs(fit.offset_ns / 1e3 - known["offset_us"]) < 1.0
        assert abs((fit.drift_ppm or 0.0) - known["drift"] * 1e6) < 1.0
    late = truth["straggler"]
    assert [one.rank for one in found.stragglers] == ([late] if late >= 0 else [])
