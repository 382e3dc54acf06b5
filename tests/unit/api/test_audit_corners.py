"""What a person does to an audit at three in the morning, and what a change does behind a reviewer's back."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

import fake_audit
from dsv4prof.api.audit_watch import watch
from dsv4prof.api.auditing import AuditOptions, AuditRequest, audit_code
from dsv4prof.errors import OutputError, UsageError
from dsv4prof.model.report import Report
from dsv4prof.report import render

SOURCE = "class Backend:\n    def forward(self, x):\n        n = x.item()\n        return x.tolist()\n"
ALLOWED = SOURCE.replace("x.item()", "x.item()  # dsv4prof: allow[DSV101] protects=rows the copy is pending")


@pytest.fixture(autouse=True)
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    fake_audit.install(monkeypatch)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg" / "m.py").write_text(SOURCE)
    return tmp_path


def run(**fields: Any) -> Report:
    return audit_code(["pkg"], AuditRequest(**fields))


def committed(project: Path, text: str) -> None:
    (project / "pkg" / "m.py").write_text(text)
    for words in (["init", "-q"], ["add", "pkg"], ["commit", "-qm", "one"]):
        subprocess.run(["git", "-c", "user.name=t", "-c", "user.email=t@localhost", *words], cwd=project, check=True)


def statuses(report: Report) -> list[tuple[str, str]]:
    return [(finding.code, getattr(finding, "status", "")) for finding in report.findings]


def test_a_remark_that_a_change_takes_away_leaves_its_finding_new(project: Path) -> None:
    committed(project, ALLOWED)
    (project / "pkg" / "m.py").write_text(SOURCE)
    assert statuses(run(diff="HEAD")) == [("DSV101", "new")]


def test_no_baseline_holds_what_a_change_took_away(project: Path) -> None:
    committed(project, ALLOWED)
    run(write_baseline=project / "b.json")
    (project / "pkg" / "m.py").write_text(SOURCE.replace("x.item()", "0"))
    report = run(diff="HEAD", baseline=project / "b.json")
    assert statuses(report) == [("DSV205", "removed")]
    assert report.verdict.summary.startswith("0 new, 1 removed (not shown safe)")
    assert report.verdict.exit_code == 1


def test_a_conflict_takes_nothing_away(project: Path) -> None:
    committed(project, ALLOWED)
    (project / "pkg" / "m.py").write_text(SOURCE + "<<<<<<< ours\n")
    report = run(diff="HEAD")
    assert statuses(report) == []
    assert [check.ok for check in report.checks] == [False]


@pytest.mark.parametrize("linked", [False, True])
def test_a_baseline_takes_no_pipe_s_or_device_s_place(linked: bool, project: Path) -> None:
    os.mkfifo(project / ("pipe" if linked else "b.json"))
    if linked:
        (project / "b.json").symlink_to("pipe")
    with pytest.raises(OutputError, match="no regular file"):
        run(write_baseline=project / "b.json")
    assert not (project / "b.json").is_file()


def test_a_baseline_behind_a_link_stays_there(project: Path) -> None:
    (project / "shared").mkdir()
    (project / "b.json").symlink_to("shared/b.json")
    run(write_baseline=project / "b.json")
    assert (project / "b.json").is_symlink()
    assert (project / "shared" / "b.json").is_file()


@pytest.mark.parametrize("version", ["two", "-1", "x2.9", "v", "2.x", "2.9,2.10", "2."])
def test_a_version_that_is_none_is_a_mistake(version: str) -> None:
    with pytest.raises(UsageError, match="no version of torch"):
        run(options=AuditOptions(torch_version=version))


@pytest.mark.parametrize("version", ["2", "2.9", "2.13.0a0+git12ab", "2.9.1+cu128", None, ""])
def test_versions_as_torch_says_them(version: str | None) -> None:
    assert run(options=AuditOptions(torch_version=version)).findings


def test_a_broken_file_is_one_line_whatever_it_is_called(project: Path) -> None:
    (project / "pkg" / "a\nb\x1b[31m.py").write_text("def (\n")
    concise = render(run(), "concise")
    assert len(concise.splitlines()) == 1 + len(run().findings)
    assert "\x1b" not in concise


def test_markdown_shows_no_character_that_turns_a_line_round(project: Path) -> None:
    (project / "pkg" / "a\u202e\x1b[31mb.py").write_text(SOURCE)
    said = render(run(), "markdown")
    assert "a??[31mb.py" in said
    assert "\u202e" not in said


def watched(project: Path, *changes: Any) -> list[Report]:
    """The first report, and one after each of the changes."""
    steps = iter(changes)
    reports = watch(["pkg"], AuditRequest(), pause=lambda: next(steps)())
    return [next(reports) for _ in range(len(changes) + 1)]


def test_watching_outlives_a_file_that_somebody_is_typing(project: Path) -> None:
    path = project / "pkg" / "m.py"
    _, typing, same, more = watched(
        project,
        lambda: path.write_text(SOURCE + "def ("),
        lambda: path.write_text(SOURCE),
        lambda: path.write_text(SOURCE + "\n    def g(self, y):\n        return y.item()\n"),
    )
    assert [typing.findings, same.findings] == [[], []], "nothing was fixed, and nothing is new"
    assert "0 new, 0 gone, 2 as before" in same.verdict.summary
    assert statuses(more) == [("DSV101", "new")]


def test_nothing_elsewhere_is_gone_while_somebody_types(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the real detector: that the value is on the device is known by a function of the file that is broken."""
    monkeypatch.undo()
    monkeypatch.chdir(project)
    made = "import torch\n\n\ndef made():\n    return torch.ones(3, device='cuda')\n"
    (project / "pkg" / "__init__.py").write_text("")
    (project / "pkg" / "old.py").write_text("print 1\n")
    (project / "pkg" / "a.py").write_text(made)
    (project / "pkg" / "m.py").write_text("from pkg.a import made\n\n\ndef forward():\n    return int(made().sum())\n")
    first, typing, still, mended = watched(
        project,
        lambda: (project / "pkg" / "a.py").write_text(made + "def ("),
        lambda: (project / "pkg" / "a.py").write_text(made + "def f("),
        lambda: (project / "pkg" / "a.py").write_text(made),
    )
    assert statuses(first) == [("DSV101", "")]
    assert [typing.findings, still.findings, mended.findings] == [[], [], []]


def test_watching_calls_what_is_no_longer_there_gone(project: Path) -> None:
    """Fixed is what a change is proven to have mended: nobody proves it here."""
    path = project / "pkg" / "m.py"
    _, after = watched(project, lambda: path.write_text(SOURCE.replace("x.item()", "0")))
    assert statuses(after) == [("DSV101", "gone")]


def test_watching_outlives_the_last_file(project: Path) -> None:
    path = project / "pkg" / "m.py"
    (project / "pkg" / "other.txt").write_text("")
    _, gone, back = watched(project, path.unlink, lambda: path.write_text(SOURCE))
    assert "there is no Python file" in gone.verdict.summary
    assert gone.findings == []
    assert "0 new, 0 gone, 2 as before" in back.verdict.summary
