"""Acceptance, graphs, and what a trace lacks."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsv4prof.analysis.graphs import analyze_graphs
from dsv4prof.analysis.mtp import analyze_mtp
from dsv4prof.analysis.quality import analyze_quality
from dsv4prof.model.finding import Severity
from dsv4prof.trace.index import TraceIndex
from dsv4prof.trace.load import load_rank
from dsv4prof.trace.merge import merge
from traces import Event, call, document, flow, kernel, launched_rank, merged, note, op, write


def _index(tmp_path: Path, *ranks: list[Event]) -> TraceIndex:
    return TraceIndex(merged(tmp_path, *ranks))


def _accepted(requests: int, tokens: int, at: float) -> Event:
    return note(f"dsv4.accepted requests={requests} tokens={tokens}", at, 0)


def _step(phase: str, *inside: Event, graph: str | None = None) -> list[Event]:
    tail = f" graph={graph}" if graph else ""
    return [note("dsv4.step#0 kind=decode", 0, 100), note(f"dsv4.phase {phase} requests=1{tail}", 10, 50), *inside]


def test_acceptance_is_tokens_a_request_of_one_rank(tmp_path: Path) -> None:
    rank = [_accepted(4, 9, 1), _accepted(2, 6, 2)]
    (metric,) = analyze_mtp(_index(tmp_path, rank, rank)).metrics
    assert (metric.value, metric.unit) == (2.5, "tokens")
    assert metric.reason == "15 tokens for 6 requests in 2 verifies, rank 0"


def test_verifies_without_markers_have_no_acceptance_and_say_why(tmp_path: Path) -> None:
    (metric,) = analyze_mtp(_index(tmp_path, _step("target_verify"))).metrics
    assert (metric.value, metric.reason) == (None, "the trace has no acceptance markers")


def test_plain_decoding_has_nothing_to_accept(tmp_path: Path) -> None:
    assert analyze_mtp(_index(tmp_path, _step("decode"))).metrics == []


def test_fewer_tokens_than_requests_are_impossible(tmp_path: Path) -> None:
    (finding,) = analyze_mtp(_index(tmp_path, [_accepted(4, 3, 1)])).findings
    assert (finding.code, finding.severity) == ("DSV701", Severity.ERROR)


def test_on_a_cpu_only_a_statement_is_made(tmp_path: Path) -> None:
    found = analyze_graphs(_index(tmp_path, _step("draft", graph="eager")))
    assert (found.notes, found.findings, found.sections) == (["graphs: none captured"], [], [])


def test_the_gates_own_words_are_used(tmp_path: Path) -> None:
    found = analyze_graphs(_index(tmp_path, _step("draft", graph="eager")), reasons={"draft": "switched off"})
    assert found.notes == ["graphs: none captured (switched off)"]


def test_a_phase_that_ran_eagerly_on_a_gpu_is_a_finding(tmp_path: Path) -> None:
    eager = _step("draft_extend", call("hipLaunchKernel", 20, 2, 1), kernel("k", 25, 5, 1), graph="eager")
    found = analyze_graphs(_index(tmp_path, eager), reasons={"draft_extend": "backend not supported"})
    (finding,) = found.findings
    assert (finding.code, finding.severity) == ("DSV301", Severity.NOTE)
    assert finding.message == "draft_extend ran eagerly: backend not supported; 1 of 1 times"
    assert found.sections[0].rows[0]["eager"] == 1
    assert found.notes == ["graphs: captured draft_extend 0 of 1"]


@pytest.mark.parametrize(
    ("name", "captured", "eager", "unknown"),
    [
        ("hipGraphLaunch", 1, 0, 0),
        ("cudaGraphLaunch", 1, 0, 0),
        ("hipLaunchKernel", 0, 1, 0),
        ("hipEventRecord", 0, 0, 1),
    ],
)
def test_without_the_gates_word_launches_tell(
    tmp_path: Path, name: str, captured: int, eager: int, unknown: int
) -> None:
    found = analyze_graphs(_index(tmp_path, _step("draft", call(name, 20, 2, 1), kernel("k", 25, 5, 1))))
    (row,) = found.sections[0].rows
    assert (row["captured"], row["eager"], row["unknown"]) == (captured, eager, unknown)


def test_real_sets_before_and_after_capture(shared: Path) -> None:
    from dsv4prof.trace.merge import load_ranks

    def eager(side: str) -> set[object]:
        files = sorted((shared / "traces" / "h200_4rank_tp4").glob(f"{side}-*"))
        return {f.evidence["phase"] for f in analyze_graphs(TraceIndex(merge(load_ranks(files)))).findings}

    assert (eager("before"), eager("after")) == ({"draft_extend"}, set())


def test_a_clean_trace_has_no_fault(tmp_path: Path) -> None:
    assert analyze_quality(_index(tmp_path, launched_rank(), launched_rank())).findings == []


def test_a_cut_rank_a_missing_one_and_a_contradiction_are_found(tmp_path: Path) -> None:
    text = write(tmp_path / "id-TP-2.json", document([op("a", 1, 2), op("b", 5, 2)], rank=0, world=4)).read_bytes()
    cut = write(tmp_path / "id-TP-2.json", text[: text.index(b'"b"')])
    good = write(tmp_path / "id-TP-0.json", document([op("a", 1, 2)], rank=0, world=4))
    found = analyze_quality(TraceIndex(merge([load_rank(cut), load_rank(good)]))).findings
    assert {f.code: f.message for f in found} == {
        "DSV502": "rank 2: the file's name says rank 2, its content rank 0; the name was believed",
        "DSV401": "rank 2: file ends early (the JSON is cut): 1 whole events kept; judged by the whole ranks, "
        "the last 0% of the window and some 0% of the slices are lost",
        "DSV402": "rank 2: 1 left out: event cut off where the file ends early",
        "DSV501": "2 of 4 ranks are missing: 1, 3",
    }


def test_arrows_without_a_partner_are_no_fault(tmp_path: Path) -> None:
    assert analyze_quality(_index(tmp_path, [op("a", 1, 2), flow("f", 1, 1)])).findings == []


def test_launches_without_device_records_are_unknown_not_idle(tmp_path: Path) -> None:
    (finding,) = analyze_quality(_index(tmp_path, [call("hipLaunchKernel", n, 0.5, n + 1) for n in range(25)])).findings
    assert finding.code == "DSV403"
    assert "25 launches" in finding.message


def test_a_mended_file_says_what_was_mended(tmp_path: Path) -> None:
    text = write(tmp_path / "rank0.json", document([op("a", 1, 2), op("b", 5, 2)])).read_bytes()
    trace = merge([load_rank(write(tmp_path / "rank0.json", text.replace(b'"b"', b'"b\x01"')))])
    (finding,) = analyze_quality(TraceIndex(trace)).findings
    assert (finding.code, finding.severity) == ("DSV404", Severity.WARNING)
    assert finding.message.startswith("rank 0: raw control characters in strings were replaced by spaces, ")


def test_a_rank_without_its_base_time_is_hours_away(tmp_path: Path) -> None:
    based = [write(tmp_path / f"rank{n}.json", document([op("a", n, 1)])) for n in (1, 2)]
    bare = write(tmp_path / "rank0.json", {"traceEvents": [op("a", 1, 1)]})
    (finding,) = analyze_quality(TraceIndex(merge([load_rank(path) for path in (bare, *based)]))).findings
    assert (finding.code, finding.evidence["rank"]) == ("DSV505", 0)
    assert finding.message.endswith("hours from those of rank 1; clocks cannot be compared")
    close = [write(tmp_path / f"rank{n}.json", document([op("a", n * 1e9, 1)])) for n in (0, 1)]
    assert analyze_quality(TraceIndex(merge([load_rank(path) for path in close]))).findings == []
