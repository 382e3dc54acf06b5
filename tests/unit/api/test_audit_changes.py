"""Where a change is told to have happened, and which remarks are its own doing."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

import fake_audit
from dsv4prof.api.auditing import AuditRequest, audit_code
from dsv4prof.model.finding import SourceFinding
from dsv4prof.model.report import Report
from dsv4prof.report import render

SOURCE = "class Backend:\n    def forward(self, x):\n        n = x.item()\n        return x\n"


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    fake_audit.install(monkeypatch)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pkg").mkdir()
    return tmp_path


def run(*paths: str, **fields: Any) -> Report:
    return audit_code(list(paths) or ["pkg"], AuditRequest(diff="HEAD", **fields))


def committed(project: Path, text: str) -> Path:
    path = project / "pkg" / "m.py"
    path.write_text(text)
    for words in (["init", "-q"], ["add", "pkg"], ["commit", "-qm", "one"]):
        subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@localhost", *words], cwd=project, check=True)
    return path


def removed(report: Report) -> SourceFinding:
    (found,) = report.findings
    assert isinstance(found, SourceFinding)
    assert found.code == "DSV205"
    return found


def test_what_is_gone_stands_on_the_new_text_where_people_look(project: Path) -> None:
    path = committed(project, SOURCE)
    path.write_text("import os\n\n\n" + SOURCE.replace("x.item()", "0"))
    report = run()
    gone = removed(report)
    assert (gone.line, gone.side, gone.now_file, gone.now_line) == (3, "old", "pkg/m.py", 6)
    annotation = render(report, "github").splitlines()[0]
    assert "file=pkg/m.py,line=6,endLine=6,title=" in annotation
    assert "stood at pkg/m.py:3:" in annotation
    result = json.loads(render(report, "sarif"))["runs"][0]["results"][0]
    assert result["locations"][0]["physicalLocation"]["region"] == {"startLine": 6}
    assert result["properties"]["old_line"] == 3
    for fmt in ("text", "concise"):
        assert "(in the old text; now line 6)" in render(report, fmt)
    assert json.loads(render(report, "json"))["findings"][0]["side"] == "old"


def test_of_a_file_that_is_gone_no_line_is_named(project: Path) -> None:
    path = committed(project, SOURCE)
    (project / "pkg" / "other.py").write_text("")
    path.unlink()
    report = run()
    gone = removed(report)
    assert (gone.now_file, gone.now_line) == ("", 0)
    assert "file=" not in render(report, "github").splitlines()[0]
    (result,) = json.loads(render(report, "sarif"))["runs"][0]["results"]
    assert "region" not in result["locations"][0]["physicalLocation"]
    assert "(in the old text; file gone)" in render(report, "text")


def test_what_stands_near_is_called_from_the_working_directory(project: Path) -> None:
    pinned = SOURCE.replace("return x\n", "return torch.empty(4, pin_memory=True)\n")
    path = committed(project, pinned)
    path.write_text(pinned.replace("x.item()", "0"))
    assert "(near it: pkg/m.py:4)" in removed(run()).message


def remarks(report: Report) -> list[int]:
    return [f.location.line or 0 for f in report.findings if f.code == "DSV001" and f.location]


def test_remarks_that_allowed_nothing_before_are_not_new(project: Path) -> None:
    text = "A = 1  # dsv4prof: allow[DSV101] one\nB = 2\nC = 3  # dsv4prof: allow[DSV101] one\n"
    path = committed(project, text)
    path.write_text(text.replace("B = 2\n", ""))
    assert remarks(run()) == []
    path.write_text(text.replace("B = 2\n", "B = 2  # dsv4prof: allow[DSV101] one\n"))
    assert len(remarks(run())) == 1


def test_a_remark_is_stale_by_what_the_change_took_from_its_function(project: Path) -> None:
    text = SOURCE.replace("        n = x.item()\n", "        # dsv4prof: allow[DSV101] once\n        n = x.item()\n")
    path = committed(project, text)
    path.write_text(text.replace("        n = x.item()\n", ""))
    assert remarks(run()) == [3]
