"""Text and JSON of one report: nothing cut, nothing computed, nothing but text where nobody asked for colour."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from dsv4prof.errors import UsageError
from dsv4prof.model.finding import Finding, Location, Severity
from dsv4prof.model.report import Check, Column, Metric, Provenance, Report, Section, Verdict
from dsv4prof.report import render
from dsv4prof.report.numbers import cell, size, time

METRICS = [
    Metric("step.mean", "step", 9_840_000, "ns"),
    Metric("step.p99", "p99", 11_200_000, "ns"),
    Metric("phase.draft", "draft", 1_900_000, "ns"),
    Metric("phase.target_verify", "target_verify", 5_700_000, "ns"),
    Metric("phase.idle", "idle", 84_000, "ns"),
    Metric("accept_length", "accept length", 2.3125, "tokens"),
]
PLACE = Location("/opt/dsv4_engine/attention/metadata.py", line=88, function="attach_prefill_meta")
TABLE = Section(
    key="t",
    title="Ranks",
    columns=[
        Column("rank", "rank", "count"),
        Column("host", "host"),
        Column("ns", "offset", "ns"),
        Column("x", "share", "percent"),
    ],
    rows=[{"rank": 0, "host": "n0", "ns": 0, "x": 50.0}, {"rank": 10, "host": None, "ns": -5_510_000, "x": 3.1}],
    note="two hosts",
)


def _read(code: str = "DSV105", cost: int | None = None, **evidence: Any) -> Finding:
    return Finding(
        code=code,
        severity=Severity.WARNING,
        message="repeat_interleave without output_size",
        location=PLACE,
        evidence={"reads": 24, "per_step": 2.0, **evidence},
        cost_ns=cost,
        cost_reason=None if cost else "CPU run: nothing blocks here; on a GPU each would",
    )


def _report(**changes: Any) -> Report:
    fields: dict[str, Any] = {"kind": "run", "provenance": Provenance("run"), "verdict": Verdict(0, "fine")}
    return Report(**{**fields, **changes})


def _text(**changes: Any) -> str:
    return render(_report(**changes), "text")


def test_the_step_is_one_line_in_one_unit() -> None:
    line = _text(metrics=METRICS).splitlines()[0]
    assert line == "step 9.84 ms (p99 11.2)   draft 1.90 | target_verify 5.70 | idle 0.08   accept length 2.31"


def test_reads_of_a_cpu_run_are_counted_and_placed() -> None:
    assert _text(findings=[_read(), _read(per_step=None, region="r")]).splitlines() == [
        "host reads (CPU run: nothing blocks here; on a GPU each would)",
        "    2/step  DSV105  repeat_interleave without output_size  attach_prefill_meta, metadata.py:88",
        " 24 in all  DSV105  repeat_interleave without output_size  attach_prefill_meta, metadata.py:88",
    ]


def test_reads_of_one_kind_of_step_are_counted_by_its_steps() -> None:
    of_one, of_two = (_text(findings=[_read(step_kinds=kinds)]) for kinds in (["prefill"], ["decode", "prefill"]))
    assert "2/prefill step  DSV105" in of_one
    assert "2/step  DSV105" in of_two


def test_measured_reads_are_a_table_of_cost() -> None:
    head, first, second = _text(findings=[_read(cost=420_000), _read(cost=1_234, per_step=None)]).splitlines()
    assert head.split() == ["cost/step", "rule", "what", "where"]
    assert first.split()[:3] == ["420", "us", "DSV105"]
    assert "1.23 us in all" in second


def test_other_findings_are_a_sentence_each() -> None:
    finding = Finding(code="DSV401", severity=Severity.WARNING, message="rank 6: file ends early", cost_reason="x")
    assert _text(findings=[finding]).splitlines() == ["! DSV401  rank 6: file ends early"]


def test_a_finding_without_a_place_names_its_range() -> None:
    finding = Finding(
        code="DSV106", severity=Severity.NOTE, message="wait", evidence={"reads": 1, "region": "copy"}, cost_ns=5
    )
    assert _text(findings=[finding]).splitlines()[-1].endswith("in copy")
    facts = {"reads": 1, "region": None, "step_kinds": ["decode", "prefill"]}
    finding = Finding(code="DSV108", severity=Severity.NOTE, message="upload", evidence=facts)
    assert _text(findings=[finding]).splitlines()[-1].endswith("in decode and prefill steps")


def test_tables_are_aligned_and_whole() -> None:
    lines = _text(kind="analyze", sections=[TABLE]).splitlines()
    assert lines == [
        "Ranks",
        "rank  host    offset   share",
        "   0  n0        0 ns  50.0 %",
        "  10  -     -5.51 ms   3.1 %",
        "two hosts",
    ]


def test_a_merge_shows_its_table_before_its_result() -> None:
    text = _text(kind="merge", sections=[TABLE], checks=[Check("merged", True, "merged.json.gz")])
    assert text.index("Ranks") < text.index("✓ merged.json.gz")
    assert "Ranks" not in _text(sections=[TABLE])


def test_checks_carry_their_outcome() -> None:
    checks = [Check("a", True, "good"), Check("b", False, "bad"), Check("c", None, "unknown")]
    assert _text(checks=checks).splitlines() == ["✓ good", "✗ bad", "- unknown"]


def test_the_verdict_shows_when_it_fails_and_the_next_command_last() -> None:
    lines = _text(verdict=Verdict(1, "2 warnings"), next_command="dsv4prof view 7f3a").splitlines()
    assert lines == ["2 warnings", "", "Next: dsv4prof view 7f3a"]
    assert _text() == "fine\n"


def test_colour_changes_no_word() -> None:
    report = _report(
        metrics=METRICS,
        findings=[_read(), _read(cost=5_000)],
        sections=[TABLE],
        kind="analyze",
        checks=[Check("a", True, "x")],
    )
    plain, colored = render(report, "text"), render(report, "text", color=True)
    assert "\x1b[" in colored
    assert re.sub(r"\x1b\[\d+m", "", colored) == plain


def test_json_has_the_schema_integers_and_the_data_beside_them() -> None:
    report = _report(findings=[_read(cost=420_000)], metrics=METRICS, data={"host_reads": [1], "kind": "ignored"})
    found = json.loads(render(report, "json"))
    assert (found["schema"], found["kind"], found["host_reads"]) == ("dsv4prof.report/1", "run", [1])
    assert found["findings"][0]["cost_ns"] == 420_000
    assert found["findings"][0]["location"]["file"] == PLACE.file
    assert "data" not in found


def test_an_unknown_format_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError) as caught:
        render(_report(), "yaml")
    assert caught.value.hint == "known formats: text, json, concise, jsonl, sarif, github, markdown, junit"


@pytest.mark.parametrize(
    ("ns", "text"),
    [
        (0, "0 ns"),
        (999, "999 ns"),
        (1_000, "1.00 us"),
        (15_492, "15.5 us"),
        (463_063_750, "463 ms"),
        (-5_510_000, "-5.51 ms"),
        (1_234_567_890_123, "1,235 s"),
    ],
)
def test_times_are_never_cut(ns: int, text: str) -> None:
    assert time(ns) == text


def test_other_units() -> None:
    assert size(512) == "512 B"
    assert size(3 << 20) == "3.0 MiB"
    shown = [cell(None, "ns"), cell(True, "text"), cell(61511, "count"), cell(9.96, "ppm")]
    assert shown == ["-", "yes", "61,511", "10.0 ppm"]
    assert [cell(4.06, "percent"), cell(1.5, "ratio")] == ["4.1 %", "1.50"]


def test_a_measured_read_says_for_how_long_the_device_idled() -> None:
    lines = _text(
        findings=[
            _read(cost=420_000, gpu_idle_per_step_ns=310_000),
            _read(cost=5_000, per_step=None, gpu_idle_ns=2_000, gpu_idle_per_step_ns=None),
            _read(cost=4_000, gpu_idle_per_step_ns=None),
        ]
    ).splitlines()
    assert ["GPU idle 310 us after" in lines[1], "GPU idle 2.00 us after" in lines[2]] == [True, True]
    assert "idle" not in lines[3]
