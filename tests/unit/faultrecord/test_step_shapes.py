"""Logs of steps of every shape: the same hang is found in each, and damage ends in a sentence, never in a traceback."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from dsv4prof.api.fault_hanging import fault_hang
from dsv4prof.errors import InputError

BEFORE = {"step": 1, "t": 0.05, "running": 4, "padded_bs": 4, "ctx_lens": [9, 8, 7, 6]}
LAST = {"step": 2, "t": 0.1, "running": 3, "padded_bs": 4, "ctx_lens": [10, 9, 8, -1]}
BEAT = {"t": 60.1, "heartbeat": True, "kernel_running": "topk", "age_s": 60.0, "gpu_util": 1.0}
ROWS: list[dict[str, Any]] = [BEFORE, LAST, BEAT]


def lines(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def renamed(rows: list[dict[str, Any]]) -> str:
    names = {"step": "stepId", "t": "time", "running": "numRunning", "padded_bs": "paddedBs", "ctx_lens": "ctxLens"}
    return lines([{names.get(key, key): value for key, value in row.items()} for row in rows])


def as_text(rows: list[dict[str, Any]]) -> str:
    def said(value: Any) -> Any:
        return [str(each) for each in value] if isinstance(value, list) else str(value)

    return lines([{key: said(value) for key, value in row.items()} for row in rows])


SHAPES: dict[str, Callable[[list[dict[str, Any]]], str | bytes]] = {
    "plain": lines,
    "camel case": renamed,
    "numbers as text": as_text,
    "one list": json.dumps,
    "one list over lines": lambda rows: json.dumps(rows, indent=1),
    "one object": lambda rows: json.dumps({"version": 1, "steps": rows[:2]}),
    "byte order mark": lambda rows: b"\xef\xbb\xbf" + lines(rows).encode(),
    "utf-16": lambda rows: lines(rows).encode("utf-16"),
    "windows": lambda rows: lines(rows).replace("\n", "\r\n"),
    "line separators in strings": lambda rows: lines([{"note": "a\u2028b", **row} for row in rows]).replace(
        "\\u2028", "\u2028"
    ),
    "not a number": lambda rows: lines([{"loss": float("nan"), **row} for row in rows]),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_impossible_length_is_found_whatever_the_log_looks_like(shape: str, tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    text = SHAPES[shape](ROWS)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    report = fault_hang(path)
    (bad,) = report.data["hang"]["metadata"]
    assert (bad["step"], bad["slot"], bad["value"], bad["padding"], bad["unsigned"]) == (2, 3, -1, True, 4294967295)
    if shape != "one object":
        assert report.data["hang"]["kernel"] == "topk"
        assert report.data["hang"]["changed"] == [
            "one request left (4 to 3 running)",
            "first step with padding (1 of 4 slots)",
            "ctx_lens[3] went from 6 to -1",
        ]


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"\n\n",
        b"hello\nworld\n",
        bytes(range(256)) * 20,
        b'{"step":1,"t":0.1,"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n",
        b'{"step":1,"t":0.1,"ctx_lens":[' + b"9" * 5000 + b"]}\n",
    ],
)
def test_what_holds_no_step_ends_in_a_sentence(text: bytes, tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    path.write_bytes(text)
    with pytest.raises(InputError, match="has no steps"):
        fault_hang(path)


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e999", "9" * 400, "null", "[]", "{}", '"x"'])
@pytest.mark.parametrize("field", ["step", "t", "running", "padded_bs", "ctx_lens"])
def test_no_value_of_a_field_breaks_it(field: str, value: str, tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    odd = json.dumps({**LAST, field: "@"}).replace('"@"', value)
    path.write_text(lines([BEFORE]) + odd + "\n" + lines([BEAT]))
    assert fault_hang(path).verdict.exit_code in (0, 1)


def test_a_value_that_earlier_steps_lived_with_is_a_weaker_guess(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    path.write_text(lines([{**LAST, "step": step, "t": step / 20} for step in range(40)] + [{**BEAT, "last_step": 39}]))
    report = fault_hang(path)
    assert report.data["hang"]["suspicion"].startswith("possible: ")
    metadata = [finding.message for finding in report.findings if finding.code == "DSV804"]
    assert len(metadata) == 2
    assert metadata[1].endswith("(and 38 more such in earlier steps)")


def test_a_collective_beside_a_bad_value_points_to_the_rank_that_did_not_arrive(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    path.write_text(lines([BEFORE, LAST, {**BEAT, "kernel_running": "ncclDevKernel_AllReduce_Sum_bf16"}]))
    suspicion = fault_hang(path).data["hang"]["suspicion"]
    assert suspicion.startswith("a collective waits: look at the rank that did not arrive")
    assert "nccl" not in suspicion


def test_a_fault_in_the_other_logs_is_told_where_nothing_hung(tmp_path: Path) -> None:
    path, log = tmp_path / "steps.jsonl", tmp_path / "server.log"
    path.write_text(lines([BEFORE]))
    log.write_text(
        "Memory access fault by GPU node-1 (Agent handle: 0x1) on address 0x7f0000001000. Reason: Unknown.\n"
    )
    report = fault_hang(path, logs=[log])
    assert report.verdict.exit_code == 1
    assert "no hang" in report.verdict.summary
    assert [finding.code for finding in report.findings] == ["DSV801"]
