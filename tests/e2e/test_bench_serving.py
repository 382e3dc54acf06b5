"""`dsv4prof bench` from the command line; what it sends and counts is tested in tests/unit/target/test_bench.py."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from child import TINY, dsv4prof

pytest.importorskip("uvicorn")
SMALL = ("--random-input-len", "24", "--random-output-len", "6", "--num-prompts", "6")
# As sglang.bench_serving prints them.
NAMES = (
    "Successful requests", "Benchmark duration (s)", "Total input tokens", "Total generated tokens",
    "Request throughput (req/s)", "Input token throughput (tok/s)", "Output token throughput (tok/s)",
    "Total token throughput (tok/s)", "Concurrency", "Accept length", "Mean E2E Latency (ms)",
    "Median E2E Latency (ms)", "Mean TTFT (ms)", "Median TTFT (ms)", "P99 TTFT (ms)", "Mean TPOT (ms)",
    "Median TPOT (ms)", "P99 TPOT (ms)", "Mean ITL (ms)", "Median ITL (ms)", "P95 ITL (ms)", "P99 ITL (ms)",
    "Max ITL (ms)",
)  # fmt: skip


def test_a_server_of_its_own(workspace: Path, tmp_path: Path) -> None:
    outcome = dsv4prof("bench", *SMALL, "--max-concurrency", "3", "--output-file", "out.jsonl", "--",
                       "--threads", "1", *TINY, cwd=tmp_path)  # fmt: skip
    assert outcome.status == 0, outcome.stderr
    shown = dict(re.findall(r"^(.+?):\s+(\S+)$", outcome.stdout, re.MULTILINE))
    assert set(NAMES) <= set(shown)
    assert "next:" not in outcome.stderr, "its server is gone when somebody reads it"
    assert int(shown["Successful requests"]) == 6 and 1 <= float(shown["Concurrency"]) <= 3.01
    (line,) = (tmp_path / "out.jsonl").read_text().splitlines()
    assert f"{json.loads(line)['mean_ttft_ms']:.2f}" == shown["Mean TTFT (ms)"]


def test_a_server_that_does_not_start(workspace: Path, tmp_path: Path) -> None:
    refused = dsv4prof("bench", "--", "--model", "nowhere", cwd=tmp_path)
    assert refused.status == 2 and "model nowhere does not exist" in refused.stderr
