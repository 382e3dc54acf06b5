"""The truth harness as reports."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsv4prof import api
from dsv4prof.api import truth as use_case
from dsv4prof.errors import InputError, InterruptedRunError, OutputError, UsageError
from dsv4prof.sync import measured
from dsv4prof.sync.measured import CaseFile, Measurement, Meta, Truth
from dsv4prof.sync.runtime.truth import campaign, torch_probe


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device on which everything waits, except sums."""

    def answers(wanted: CaseFile, **_: object) -> Truth:
        rows = [Measurement(id=c.id, call=c.call, syncs=c.id != "sum_alone", warned=1) for c in wanted.cases]
        return Truth(Meta(torch="2.11.0", hip="7.0", device="AMD Instinct MI300X"), rows)

    monkeypatch.setattr(torch_probe, "require_device", lambda: None)
    monkeypatch.setattr(campaign, "measure_all", answers)


def test_measuring_writes_a_file_and_tells_drift_and_contradictions(
    device: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    report = api.truth_measure(only="*_alone")
    path = Path(report.data["path"])
    assert path.name == "truth.amd-instinct-mi300x.torch2.11.jsonl"
    assert {row.id: row.syncs for row in measured.read(path).rows} == {
        "sum_alone": False,
        "any_alone": True,
        "eq_alone": True,
    }
    assert {change["id"] for change in report.data["drift"]["changed"]} == {"any_alone", "eq_alone"}
    assert {one["case"] for one in report.data["contradictions"]} == {"any_alone", "eq_alone"}
    assert report.verdict.exit_code == 0


def test_drift_that_no_form_explains_fails_on_request_alone(device: None, tmp_path: Path) -> None:
    out = tmp_path / "o.jsonl"
    assert api.truth_measure(only="sum_alone", output=out, fail_on_drift=True).verdict.exit_code == 0
    assert api.truth_measure(only="any_alone", output=out, fail_on_drift=True).verdict.exit_code == 1
    assert api.truth_measure(only="any_alone", output=out, against=None).data["drift"] is None


def test_what_cannot_be_done_is_refused_before_anything_is_measured(
    device: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(campaign, "measure_all", lambda *_, **__: pytest.fail("measured"))
    with pytest.raises(UsageError, match="no case"):
        api.truth_measure(only="nothing-like-it")
    with pytest.raises(OutputError):
        api.truth_measure(output=tmp_path / "no" / "folder.jsonl")
    with pytest.raises(InputError):
        api.truth_measure(against=str(tmp_path / "missing.jsonl"))


def test_ctrl_c_saves_what_was_measured(device: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [Measurement(id="item", call="s.item()", syncs=True)]

    def stopped(*_: object, **__: object) -> Truth:
        raise campaign.InterruptedMeasuringError(Truth(Meta(), rows))

    monkeypatch.setattr(campaign, "measure_all", stopped)
    with pytest.raises(InterruptedRunError, match="interrupted; 1 case"):
        api.truth_measure(output=tmp_path / "o.jsonl")
    assert measured.read(tmp_path / "o.jsonl").rows == rows


def test_the_nearest_shipped_measurement_is_of_the_same_vendor_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = []
    for name, meta in {
        "a": Meta(torch="2.9.0", cuda="12.8", device="a"),
        "b": Meta(torch="2.11.0", cuda="13.0", device="b"),
        "c": Meta(torch="2.8.0", hip="6.4", device="c"),
    }.items():
        paths.append(tmp_path / f"{name}.jsonl")
        measured.write(paths[-1], Truth(meta, []))
    monkeypatch.setattr(measured, "shipped", lambda: paths)
    assert use_case.nearest(Meta(torch="2.12.0", cuda="13.0")).meta.device == "b"
    assert use_case.nearest(Meta(torch="2.11.0", hip="7.0")).meta.device == "c"


def test_a_shipped_file_against_shipped_has_no_drift_either_way() -> None:
    path = str(measured.shipped()[0])
    for pair in (("shipped", path), (path, "shipped")):
        report = api.truth_compare(*pair, fail_on_drift=True)
        assert report.verdict.exit_code == 0
        assert report.data["drift"]["changed"] == []
        failed = [row.id for row in measured.read(Path(path)).rows if row.syncs is None]
        left = [note for note in report.notes if note.startswith("not compared: ")]
        assert left == [] if not failed else f"{len(failed)} case" in left[0]
        assert not failed or failed[0] in left[0]
    with pytest.raises(UsageError, match="nothing to compare"):
        api.truth_compare("shipped", "shipped")


def test_the_list_has_cases_only_where_they_are_asked_for() -> None:
    assert [section.key for section in api.truth_list().sections] == ["files"]
    report = api.truth_list("repeat_interleave_t")
    (row,) = report.sections[1].rows
    assert row["case"] == "repeat_interleave_t"
    assert "waits" in row.values()


def test_the_list_holds_the_verdict_of_each_case() -> None:
    report = use_case.truth_list("set_*")
    files = {path.stem: measured.read(path).by_id() for path in measured.shipped()}
    for case in report.data["cases"]:
        assert case["syncs"] == {name: rows[case["id"]].syncs for name, rows in files.items() if case["id"] in rows}
    assert any(True in case["syncs"].values() for case in report.data["cases"])
