"""The audit as a report: what is shown, allowed, known, new, fixed, and what fails."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

import fake_audit
from dsv4prof import rules
from dsv4prof.api.auditing import AuditOptions, AuditRequest, audit_code
from dsv4prof.errors import InputError, OutputError, UsageError
from dsv4prof.model.report import Report
from dsv4prof.report import FORMATS, render
from traces import Event, call, document, frame, kernel, op, write

SOURCE = """\
class Backend:
    def forward(self, x):
        n = x.item()
        for row in x:
            m = row.tolist()
        return x.numpy()

    def load(self, x):
        return x.item()
"""


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    fake_audit.install(monkeypatch)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "m.py").write_text(SOURCE)
    return tmp_path


def run(*paths: str, **fields: Any) -> Report:
    return audit_code(list(paths) or ["pkg"], AuditRequest(**fields))


def lines(report: Report) -> list[int]:
    return [finding.location.line for finding in report.findings if finding.location]


def as_json(report: Report) -> dict[str, Any]:
    return json.loads(render(report, "json"))


def test_hot_ones_come_first_and_the_unsure_are_only_counted() -> None:
    report = run()
    assert lines(report) == [3, 5, 9]
    assert [finding.severity.value for finding in report.findings] == ["warning", "warning", "note"]
    assert report.notes == ["not shown: 1 possible; --level possible shows them"]
    assert report.verdict.exit_code == 0
    assert report.verdict.summary == "3 findings (2 certain, 1 likely; 2 on hot paths) in 1 file"
    assert lines(run(level="possible")) == [3, 5, 6, 9]
    assert lines(run(level="certain")) == [3, 9]


def test_every_finding_of_the_json_says_where_and_why_at_its_top_level() -> None:
    facts = as_json(run())
    first = facts["findings"][0]
    expected = {
        "path": "m.py", "line": 3, "end_line": 3, "column": 13, "end_column": 21, "code": "DSV101", "level": "certain",
        "function": "Backend.forward", "hot": True, "reason": "`x` is a device tensor", "conditional": False, "loop": 0,
    }  # fmt: skip
    assert {key: first[key] for key in expected} == expected
    assert first["location"]["file"] == "pkg/m.py"
    assert [step["text"] for step in first["hot_path"]] == ["run_batch", "Backend.forward"]
    assert [step["text"] for step in first["why"]] == ["made in maker()", "annotated torch.Tensor"]
    assert first["fix"]
    assert len(first["fingerprint"]) == 16
    assert facts["counts"] == {
        "by_level": {"certain": 2, "likely": 1, "possible": 1},
        "by_rule": {"DSV101": 2, "DSV102": 1, "DSV104": 1},
        "hot": 3,
        "suppressed": 0,
        "shown": 3,
    }


def test_columns_count_characters(project: Path) -> None:
    (project / "pkg" / "m.py").write_text("def f(ä, x):\n    ä = 'ü'; n = x.item()\n", encoding="utf-8")
    (finding,) = as_json(run())["findings"]
    assert (finding["column"], finding["end_column"]) == (18, 26)


def test_selection() -> None:
    assert lines(run(select=("DSV102",))) == [5]
    assert lines(run(ignore=("DSV1",))) == []
    assert lines(run(ignore=("DSV1",), select=("DSV101",))) == [3, 9]
    assert lines(run(hot_only=True)) == [3, 5]
    assert "not shown: 1 of other rules or off the hot paths" in run(hot_only=True).notes
    with pytest.raises(UsageError, match="'DSV999'"):
        run(select=("DSV999",))
    with pytest.raises(UsageError, match="level 'sure'"):
        run(level="sure")


@pytest.mark.parametrize(("fail_on", "status"), [("never", 0), ("error", 0), ("warning", 1), ("note", 1)])
def test_the_exit_status_hangs_on_what_is_shown(fail_on: str, status: int) -> None:
    assert run(fail_on=fail_on).verdict.exit_code == status
    assert run(fail_on=fail_on, select=("DSV104",)).verdict.exit_code == 0


def test_an_allowed_finding_is_kept_apart_and_an_unused_remark_told(project: Path) -> None:
    text = SOURCE.replace("n = x.item()", "n = x.item()  # dsv4prof: allow[DSV101] once")
    text = text.replace("m = row.tolist()", "m = row  # dsv4prof: allow[DSV102] not any more")
    (project / "pkg" / "m.py").write_text(text)
    report = run()
    assert lines(report) == [5, 9]
    assert report.findings[0].code == "DSV001"
    assert report.findings[0].message == "`# dsv4prof: allow[DSV102] not any more` allows nothing: no DSV102 here"
    facts = as_json(report)
    assert [(each["line"], each["allowed_by"]["reason"]) for each in facts["suppressed"]] == [(3, "once")]
    assert "1 finding allowed by remarks in the source" in report.notes


def test_a_rule_is_chosen_by_its_name_too() -> None:
    name = rules.get("DSV101").name
    assert [finding.code for finding in run(select=[name]).findings] == ["DSV101", "DSV101"]
    assert "DSV101" not in [finding.code for finding in run(ignore=[name.upper()]).findings]


def _trace(folder: Path, *sites: tuple[str, tuple[str, ...]]) -> str:
    """A rank's file in which each function (file(def line): name) waits once in these operators."""
    events: list[Event] = []
    for n, (function, ops) in enumerate(sites):
        at = 1000 * n
        events += [
            frame(function, at, 500),
            *(op(name, at + 10 + k, 300 - 2 * k) for k, name in enumerate(ops)),
            call("cudaStreamSynchronize", at + 50, 200, 2 * n + 1),
            kernel("gemm", at, 240, 2 * n + 2),
        ]
    return str(write(folder / "rank0.json", document(events, rank=0, world=1)))


def test_what_is_allowed_has_its_cost(project: Path, tmp_path: Path) -> None:
    text = SOURCE.replace("n = x.item()", "n = x.item()  # dsv4prof: allow[DSV101] once")
    (project / "pkg" / "m.py").write_text(text)
    session = _trace(tmp_path, ("pkg/m.py(2): forward", ("aten::item", "aten::_local_scalar_dense")))
    report = run(session=session)
    assert [(each["line"], each["cost_ns"]) for each in as_json(report)["suppressed"]] == [(3, 200_000)]
    assert any("1 site of host reads, 1 of the findings among them" in note for note in report.notes)


def test_a_wait_that_only_a_trace_shows_is_a_finding(project: Path, tmp_path: Path) -> None:
    session = _trace(tmp_path, ("pkg/m.py(2): forward", ("aten::bincount", "aten::item", "aten::_local_scalar_dense")))
    (seen,) = [finding for finding in run(session=session).findings if finding.code == "DSV105"]
    assert (seen.location.line, seen.cost_ns) == (2, 200_000)
    assert "somewhere in this function, the source does not tell: aten::bincount" in seen.reason
    elsewhere = _trace(tmp_path, ("other/lib.py(2): forward", ("aten::bincount", "aten::item")))
    assert not [finding for finding in run(session=elsewhere).findings if finding.code == "DSV105"]


def test_a_remark_without_a_reason_suppresses_nothing(project: Path) -> None:
    (project / "pkg" / "m.py").write_text("def f(x):\n    return x.item()  # dsv4prof: allow[DSV101]\n")
    assert [finding.code for finding in run().findings] == ["DSV001", "DSV101"]


def test_each_code_of_a_list_has_to_earn_its_place(project: Path) -> None:
    (project / "pkg" / "m.py").write_text("def f(x):\n    return x.item()  # dsv4prof: allow[DSV101,DSV105] both\n")
    (finding,) = run().findings
    assert finding.message.endswith("allows nothing: no DSV105 here")


def test_a_blanket_noqa_counts_and_is_never_unused(project: Path) -> None:
    (project / "pkg" / "m.py").write_text("def f(x):  # noqa\n    return x.item()  # noqa\n")
    report = run()
    assert report.findings == []
    assert report.verdict.summary == "no findings in 1 file"


def test_labels_change_nothing_but_add_the_rates(project: Path) -> None:
    sites = [
        ("m.py", 3, "sync"),
        ("m.py", 6, "sync"),
        ("m.py", 4, "no_sync"),
        ("m.py", 9, "no_sync"),
        ("x.py", 1, "sync"),
    ]
    file = project / "labels.jsonl"
    file.write_text("".join(json.dumps({"file": f, "line": n, "label": label}) + "\n" for f, n, label in sites))
    plain, judged = as_json(run()), as_json(run(labels=file))
    assert plain["findings"] == judged["findings"]
    labels = judged["labels"]
    assert (labels["recall"], labels["false_rate"]) == (1 / 3, 1 / 2)
    assert (labels["sites"], labels["syncs"], labels["look_alikes"]) == (5, 3, 2)
    assert [(miss["file"], miss["line"], miss["level"]) for miss in labels["misses"]] == [
        ("m.py", 6, "possible"),
        ("x.py", 1, ""),
    ]
    assert [(each["line"], each["level"], each["codes"]) for each in labels["false"]] == [(9, "certain", ["DSV101"])]
    assert labels["unknown_files"] == ["x.py"]
    text = render(run(labels=file), "text")
    assert "recall (1 of 3 syncs) 33.3 %" in text
    assert "pkg/m.py:9" in text.split("Flagged look-alikes")[1]


def test_an_allowed_sync_still_counts_as_found(project: Path) -> None:
    (project / "pkg" / "m.py").write_text("def f(x):\n    return x.item()  # noqa\n")
    file = project / "labels.jsonl"
    file.write_text('{"file": "m.py", "line": 2, "label": "sync"}\n')
    assert as_json(run(labels=file))["labels"]["recall"] == 1


def test_a_baseline_fails_only_on_what_is_new(project: Path) -> None:
    file = project / "baseline.json"
    written = run(write_baseline=file)
    assert written.verdict.exit_code == 0
    assert f"wrote {file}: 4 findings, of every level" in written.notes
    known = run(baseline=file)
    assert (known.findings, known.verdict.exit_code) == ([], 0)
    edited = "import torch\n\n\n" + SOURCE.replace("return x.numpy()", "return (\n            x.numpy( )\n        )")
    (project / "pkg" / "m.py").write_text(edited)
    assert run(baseline=file, level="possible").verdict.exit_code == 0, "lines and layout do not count"
    (project / "pkg" / "m.py").write_text(edited + "\n    def more(self, x):\n        return x.item()\n")
    new = run(baseline=file)
    assert [finding.message.split(":")[0] for finding in new.findings] == ["scalar read by .item()"]
    assert new.verdict.exit_code == 1
    assert new.verdict.summary == "1 new, 4 unchanged in 1 file; fails on note"
    assert run(baseline=file, fail_on="warning").verdict.exit_code == 0, "it is on no hot path"


def test_what_is_gone_from_the_code_asks_for_a_new_baseline(project: Path) -> None:
    file = project / "baseline.json"
    run(write_baseline=file)
    (project / "pkg" / "m.py").write_text(SOURCE.replace("m = row.tolist()", "pass"))
    report = run(baseline=file)
    assert "1 of the baseline gone from the code; rewrite the baseline (--write-baseline)" in report.notes
    assert [entry["code"] for entry in as_json(report)["baseline"]["gone_entries"]] == ["DSV102"]


def test_nothing_is_fixed_in_files_that_were_not_looked_at(project: Path) -> None:
    (project / "pkg" / "other.py").write_text("def g(y):\n    return y.item()\n")
    file = project / "baseline.json"
    run(write_baseline=file)
    report = run(baseline=file, options=AuditOptions(exclude=("other.py",)))
    assert as_json(report)["baseline"]["gone"] == 0


def test_no_foreign_file_becomes_a_baseline(project: Path) -> None:
    (project / "notes.json").write_text("{}")
    with pytest.raises(OutputError, match="is no baseline"):
        run(write_baseline=project / "notes.json")
    with pytest.raises(UsageError, match="--diff some"):
        run(write_baseline=project / "b.json", diff="HEAD")


def test_broken_files_are_told_and_the_rest_audited(project: Path) -> None:
    (project / "pkg" / "old.py").write_text("print 1\n")
    report = run()
    assert len(report.findings) == 3
    (check,) = report.checks
    assert check.ok is False
    assert check.message.startswith("pkg/old.py:1: it is no Python 3")
    assert as_json(report)["problems"][0]["path"] == "old.py"


def test_an_audit_of_nothing_is_a_mistake(project: Path) -> None:
    with pytest.raises(InputError, match="no file or folder nowhere"):
        run("nowhere")
    (project / "empty").mkdir()
    with pytest.raises(InputError, match="no Python file"):
        run("empty")
    (project / "empty" / "a.py").write_text("print 1\n")
    (project / "empty" / "b.py").write_text("print 1\n")
    with pytest.raises(InputError, match=r"nothing could be audited: empty/a.py:1: .*\(and 1 more file\)"):
        run("empty")


def test_statistics_count_and_list_nothing() -> None:
    report = run(statistics=True)
    text = render(report, "text")
    assert "scalar read" not in text
    rows = report.sections[0].rows
    assert rows[0] == {
        "rule": "DSV101", "count": 2, "hot": 1, "certain": 2, "likely": 0, "possible": 0, "name": "scalar-read"
    }  # fmt: skip
    assert report.sections[1].rows[0]["folder"] == "."


def test_paths_of_several_targets_are_relative_to_their_common_folder(project: Path) -> None:
    (project / "other").mkdir()
    (project / "other" / "n.py").write_text("def g(y):\n    return y.item()\n")
    (project / "third.py").write_text("def g(y):\n    return y.item()\n")
    report = run("pkg", "other")
    assert [finding["path"] for finding in as_json(report)["findings"]] == [
        "pkg/m.py",
        "pkg/m.py",
        "other/n.py",
        "pkg/m.py",
    ]
    (finding,) = as_json(run("other/n.py"))["findings"]
    assert (finding["path"], finding["location"]["file"]) == ("n.py", "other/n.py")


def test_a_file_of_a_package_is_read_with_its_package(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (project / "pkg" / "sub").mkdir()
    for folder in ("pkg", "pkg/sub"):
        (project / folder / "__init__.py").write_text("")
    (project / "pkg" / "sub" / "n.py").write_text("def forward(y):\n    return y.item()\n")
    (finding,) = as_json(run("pkg/sub/n.py"))["findings"]
    assert finding["path"] == "n.py"
    assert finding["hot_path"][0] == {"text": "run_batch", "path": "n.py", "line": 1, "file": "pkg/sub/n.py"}
    monkeypatch.chdir(project / "pkg" / "sub")
    (finding,) = as_json(run("../sub"))["findings"]
    assert finding["location"]["file"] == "n.py"


def test_findings_are_the_same_from_every_working_directory(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = [finding["fingerprint"] for finding in as_json(run())["findings"]]
    monkeypatch.chdir("/")
    assert [finding["fingerprint"] for finding in as_json(run(str(project / "pkg")))["findings"]] == here


def git(folder: Path, *words: str) -> None:
    name = ("-c", "user.name=t", "-c", "user.email=t@example.org")
    subprocess.run(["git", *name, *words], cwd=folder, check=True, capture_output=True)


def test_a_change_reports_what_it_touched(project: Path) -> None:
    git(project, "init", "-q")
    git(project, "add", ".")
    git(project, "commit", "-qm", "one")
    changed = SOURCE.replace("n = x.item()", "n = x.tolist()").replace(
        "return x.numpy()", "pass\n        return x.numpy()"
    )
    (project / "pkg" / "m.py").write_text(changed)
    (project / "pkg" / "same.py").write_text("x = 1\n")
    report = run(diff="HEAD", level="possible")
    said = {(finding.code, msgspec.structs.asdict(finding)["status"]) for finding in report.findings}
    assert ("DSV102", "new") in said
    assert ("DSV205", "removed") in said
    assert "DSV104" not in {code for code, _ in said}, "the change left it alone"
    assert as_json(report)["changes"]["new"] == 1
    assert render(report, "markdown").startswith("<!-- dsv4prof:sync-audit -->\n### Sync audit: 1 new, 1 removed")


def test_a_change_answers_for_the_remarks_that_it_left_behind(project: Path) -> None:
    remark = "  # dsv4prof: allow[DSV101] once"
    text = SOURCE.replace("x.item()", "x.item()" + remark).replace("return x.numpy()", "return x  # noqa: DSV104")
    (project / "pkg" / "m.py").write_text(text)
    git(project, "init", "-q")
    git(project, "add", ".")
    git(project, "commit", "-qm", "one")
    (project / "pkg" / "m.py").write_text(text.replace("n = x.item()", "n = 3"))
    report = run(diff="HEAD")
    assert [(f.code, f.location.line) for f in report.findings if f.location and f.code == "DSV001"] == [("DSV001", 3)]


def test_a_change_without_git_is_one_sentence(project: Path) -> None:
    with pytest.raises(InputError, match="git"):
        run(diff="HEAD")


@pytest.mark.parametrize("fmt", FORMATS)
def test_names_of_files_are_no_text(fmt: str, project: Path) -> None:
    for name in (b"\xff\xe4.py", b"new\nline.py", b"a b,c:d%|`<b>.py"):
        Path(os.fsdecode(bytes(project / "pkg") + b"/" + name)).write_text(SOURCE)
    Path(os.fsdecode(bytes(project / "pkg") + b"/\xff2.py")).write_text("print 1\n")
    report = run(write_baseline=project / "b.json")
    assert len(report.findings) == 12
    render(report, fmt).encode()
    assert run(baseline=project / "b.json").verdict.exit_code == 0
