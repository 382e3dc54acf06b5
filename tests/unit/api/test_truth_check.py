"""`truth check` as a report: agreement for the union and each layer, verdicts, bad files, Ctrl-C."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dsv4prof import api
from dsv4prof.api import truth_checking as use_case
from dsv4prof.errors import InputError, UsageError
from dsv4prof.report import render
from dsv4prof.sync import measured
from dsv4prof.sync.runtime.judging.campaign import Judged
from dsv4prof.sync.runtime.judging.verdicts import Verdict

PRELUDE = "x = torch.arange(4.0, device=dev)\n"
ROWS = [
    {"id": "reads", "setup": "", "call": "x.sum().item()", "needs": "", "syncs": True},
    {"id": "adds", "setup": "y = x + 1", "call": "x + y", "needs": "", "syncs": False},
    {"id": "lies", "setup": "", "call": "x.cpu()", "needs": "cuda", "syncs": False},
    {"id": "raised", "setup": "", "call": "x.nope()", "needs": "", "syncs": None, "error": "AttributeError"},
]


def written(path: Path, rows: list[dict[str, Any]], **meta: Any) -> Path:
    head = {"meta": {"prelude": PRELUDE, **meta}}
    path.write_text("".join(json.dumps(row) + "\n" for row in [head, *rows]))
    return path


def test_agreement_missed_false_and_verdicts(tmp_path: Path) -> None:
    report = api.truth_check(written(tmp_path / "t.jsonl", ROWS), gpu=False)
    data = report.data
    assert (data["compared"], round(data["agreement"], 3), data["missed"], data["false"]) == (3, 0.667, [], ["lies"])
    assert data["union"]["false"] == data["layers"]["shadow"]["false"] == ["lies"]
    assert data["verdicts"]["reads"]["syncs"] is True
    assert (data["verdicts"]["reads"]["class"], data["verdicts"]["reads"]["form"]) == ("SYNC", "item")
    assert data["verdicts"]["adds"] == {
        "syncs": False, "class": "", "reason": "", "op": "", "form": "", "code": "", "times": 0,
        "layers": {"shadow": False}, "error": "",
    }  # fmt: skip
    assert "AttributeError" in data["failed"]["raised"]
    assert report.verdict.exit_code == 0
    assert "2 of 3 as measured (66.7 %): 0 missed, 1 false" in report.verdict.summary
    assert json.loads(render(report, "json", color=False))["union"] == data["union"]


def test_cases_without_labels_get_the_same_verdicts_alone(tmp_path: Path) -> None:
    bare = [{key: row[key] for key in ("id", "setup", "call", "needs")} for row in ROWS]
    full = api.truth_check(written(tmp_path / "f.jsonl", ROWS), gpu=False).data
    for meta in ({}, {"format": measured.CASES_FORMAT}):
        alone = api.truth_check(written(tmp_path / "b.jsonl", bare, **meta), gpu=False)
        assert alone.data["verdicts"] == full["verdicts"]
        assert (alone.data["agreement"], alone.data["compared"]) == (None, 0)
        assert "nothing was measured" in alone.verdict.summary


@pytest.mark.parametrize("text", [
    "", "hello\n", '{"meta": {"prelude": 1}}\n', '{"meta": {}}\n{"id": "x"}\n', '{"meta": {"format": "other/9"}}\n',
    '{"meta": {}}\n{"id": "a", "call": "1"}\n{"id": "a", "call": "2"}\n',
])  # fmt: skip
def test_a_bad_file_is_one_sentence(text: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        api.truth_check(path, gpu=False)
    assert caught.value.hint


def test_the_command_says_it_in_two_lines_with_status_2(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text("hello\n")
    command = [sys.executable, "-m", "dsv4prof", "truth", "check", str(path), "--no-gpu"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 2
    assert "no file of measured cases" in done.stderr


def test_what_makes_no_sense_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "t.jsonl", ROWS)
    monkeypatch.setattr(use_case, "judge_all", lambda *_, **__: pytest.fail("judged"))
    with pytest.raises(InputError, match="cannot read"):
        api.truth_check(tmp_path / "absent.jsonl", gpu=False)
    with pytest.raises(UsageError, match="no case that is called 'zz\\*'"):
        api.truth_check(path, gpu=False, only="zz*")
    with pytest.raises(UsageError, match="no case"):
        api.truth_check(written(tmp_path / "none.jsonl", []), gpu=False)
    with pytest.raises(UsageError, match="no shadow of 'xpu'"):
        api.truth_check(path, gpu=False, vendor="xpu")
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(UsageError, match="torch is not installed"):
        api.truth_check(path, gpu=False)


def test_without_a_device_the_layers_for_one_are_refused(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is a device")
    with pytest.raises(UsageError, match="only a device"):
        api.truth_check(written(tmp_path / "t.jsonl", ROWS))


def test_a_prelude_that_fails_judges_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = [Verdict(id=id, syncs=False, error="PreludeError: NameError: no q") for id in ("reads", "adds")]
    path = written(tmp_path / "t.jsonl", ROWS)
    monkeypatch.setattr(use_case, "judge_all", lambda *_, **__: Judged(failed))
    with pytest.raises(InputError, match=r"prelude of t\.jsonl fails here: NameError: no q"):
        api.truth_check(path, gpu=False)
    monkeypatch.setattr(use_case, "judge_all", lambda *_, **__: Judged([*failed, Verdict(id="lies", syncs=False)]))
    assert api.truth_check(path, gpu=False).verdict.exit_code == 0


def test_ctrl_c_reports_what_was_judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    partly = Judged([Verdict(id="reads", syncs=True, kind="SYNC", layers={"shadow": True})], interrupted=True)
    monkeypatch.setattr(use_case, "judge_all", lambda *_, **__: partly)
    report = api.truth_check(written(tmp_path / "t.jsonl", ROWS), gpu=False)
    assert report.verdict.exit_code == 130
    assert report.data["compared"] == 1
    assert any("after 1 of 4 cases" in note for note in report.notes)


def test_layers_that_disagree_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    verdicts = [
        Verdict(id="reads", syncs=True, kind="SYNC", layers={"warn": True, "dispatch": False}),
        Verdict(id="adds", syncs=False, layers={"warn": False, "dispatch": False}),
        Verdict(id="lies", syncs=False, layers={"warn": False, "dispatch": False}),
    ]
    monkeypatch.setattr(use_case, "judge_all", lambda *_, **__: Judged(verdicts))
    report = api.truth_check(written(tmp_path / "t.jsonl", ROWS), gpu=False)
    assert report.data["agreement"] == 1.0
    assert report.data["layers"]["dispatch"]["missed"] == ["reads"]
    text = render(report, "text", color=False)
    assert "By layer" in text
    assert "Missed and false by layer" in text
