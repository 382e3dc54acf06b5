"""The audit of source beside runs: who exercised what, what only a run saw, and the hot functions of a change."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from dsv4prof.api import AuditRequest, audit_code
from dsv4prof.errors import InputError
from dsv4prof.model.finding import SourceFinding
from dsv4prof.model.report import Report
from dsv4prof.model.syncs import Kind
from dsv4prof.report.text import render_text
from dsv4prof.sync.exercised import Ran, RanFunction, RanSite, encode_ran
from dsv4prof.sync.run_sources import with_sources
from dsv4prof.sync.witness import Place, Witnesses

SOURCE = '''"""A builder."""
import torch


class Backend:
    def init_forward_metadata(self, lens: torch.Tensor, helper) -> None:
        total = int(lens.sum())
        self.table = helper(lens)
        self.rows = torch.arange(total)

    def init_forward_metadata_other(self, lens: torch.Tensor) -> int:
        return lens.max().item()
'''


def _write(folder: Path, *sites: tuple[int, str], functions: tuple[RanFunction, ...] = ()) -> Path:
    made = tuple(
        RanSite(file="/far/pkg/meta.py", line=line, function="f", code=code, kind=Kind.SYNC, count=4, reason="it reads")
        for line, code in sites
    )
    path = folder / "run.json"
    path.write_bytes(encode_ran(Ran(run="tests", sites=made, functions=functions)))
    return path


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "pkg"
    folder.mkdir()
    (folder / "__init__.py").touch()
    (folder / "meta.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)
    return folder


def _audit(ran: Path, **more: object) -> Report:
    return audit_code(["pkg"], AuditRequest(ran=(str(ran),), level="possible", **more))


def _by_line(report: Report) -> dict[int, SourceFinding]:
    return {finding.line: finding for finding in report.findings if isinstance(finding, SourceFinding)}


def test_each_finding_says_whether_a_run_waited_there(package: Path, tmp_path: Path) -> None:
    entered = RanFunction(file="/far/pkg/meta.py", function="init_forward_metadata", line=6)
    found = _by_line(_audit(_write(tmp_path, (7, "DSV101"), functions=(entered,))))
    assert (found[7].ran, found[7].level) == ("waited 4 times in run tests", "certain")
    assert found[12].ran == "in no given run"


def test_what_only_a_run_saw_is_a_finding(package: Path, tmp_path: Path) -> None:
    report = _audit(_write(tmp_path, (8, "DSV103")))
    (seen,) = [finding for line, finding in _by_line(report).items() if line == 8]
    assert (seen.code, seen.level, seen.text) == ("DSV103", "certain", "self.table = helper(lens)")
    assert "a run saw it" in seen.reason
    assert any("1 were seen by runs alone" in note for note in report.notes)
    assert "ran: waited 4 times in run tests" in render_text(report)


def test_without_runs_nothing_is_said(package: Path) -> None:
    report = audit_code(["pkg"], AuditRequest(level="possible"))
    assert {finding.ran for finding in _by_line(report).values()} == {""}
    assert "hot_functions" not in report.data


def _git(folder: Path, *words: str) -> None:
    subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@b.c", *words], cwd=folder, check=True, capture_output=True
    )


def test_hot_functions_that_a_change_touched_say_who_exercised_them(package: Path, tmp_path: Path) -> None:
    _git(tmp_path, "init", "-q")
    _git(tmp_path, "add", "pkg")
    _git(tmp_path, "commit", "-qm", "one")
    text = SOURCE.replace("lens.max().item()", "lens.min().item()").replace("torch.arange(total)", "torch.ones(total)")
    (package / "meta.py").write_text(text)
    entered = RanFunction(file="/far/pkg/meta.py", function="init_forward_metadata", line=6)
    report = _audit(_write(tmp_path, functions=(entered,)), diff="HEAD")
    (section,) = [section for section in report.sections if section.key == "hot_functions"]
    assert {str(row["function"]): row["ran"] for row in section.rows} == {
        "Backend.init_forward_metadata_other": "in no given run",
        "Backend.init_forward_metadata": "exercised in run tests, not seen to wait",
    }
    assert section.rows[0]["ran"] == "in no given run", "what nobody ran comes first"
    assert "exercised: 1 of 2 hot functions that the change touched" in report.notes


def test_a_name_that_is_no_run_is_refused(package: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no recorded run"):
        _audit(tmp_path / "absent.json")


def test_a_run_of_an_older_version_is_put_on_no_other_line(package: Path, tmp_path: Path) -> None:
    path = package / "meta.py"
    site = RanSite(file=str(path), line=12, function="f", code="DSV102", kind=Kind.SYNC, count=4)
    ran = tmp_path / "run.json"
    ran.write_bytes(encode_ran(with_sources(Ran(run="tests", sites=(site,)))))
    assert _by_line(_audit(ran))[12].ran == "waited 4 times in run tests"
    path.write_text('"""Moved."""\n' + SOURCE)
    moved = _audit(ran)
    assert _by_line(moved)[13].ran == "waited 4 times in run tests"
    assert 12 not in _by_line(moved)
    path.write_text(SOURCE.replace("lens.max().item()", "lens.min().item()"))
    gone = _audit(ran)
    assert not any(finding.ran.startswith("waited") for finding in _by_line(gone).values())
    assert any("meta.py has changed since run tests" in note for note in gone.notes)


def test_a_method_of_the_same_name_in_another_class_was_not_run() -> None:
    function = RanFunction(file="/x/pkg/meta.py", function="A.forward.<locals>.inner", line=4)
    witnesses = Witnesses([Ran(run="r", functions=(function,))])
    assert witnesses.of(Place("pkg/meta.py", "A.forward.inner", 4, 6)).what == "entered"
    assert witnesses.of(Place("pkg/meta.py", "inner", 4, 6)).what == "entered"
    assert witnesses.of(Place("pkg/meta.py", "B.forward.inner", 14, 16)).what == "not run"


def test_what_ran_without_waiting_for_certain_is_not_said_to_have_waited() -> None:
    site = RanSite(file="/x/pkg/meta.py", line=4, function="f", code="DSV101", kind=Kind.SUSPECT, count=2)
    witnesses = Witnesses([Ran(run="r", sites=(site,))])
    assert witnesses.of(Place("pkg/meta.py", "f", 4, 4, "DSV101")).what == "ran"


def test_a_hazard_that_a_run_found_is_a_finding(package: Path, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    race = RanSite(
        file="/far/pkg/meta.py",
        line=8,
        function="f",
        code="DSV203",
        kind=Kind.RACE,
        count=2,
        reason="a buffer is written",
    )
    path.write_bytes(encode_ran(Ran(run="tests", sites=(race,))))
    (found,) = [each for each in _by_line(_audit(path)).values() if each.code == "DSV203"]
    assert (found.line, found.level, found.ran) == (8, "certain", "found in run tests, 2 times")
    assert "a buffer is written" in found.reason
