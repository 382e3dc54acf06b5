"""Files of measurements: read, written, compared with each other and with the catalogue."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsv4prof.errors import InputError
from dsv4prof.sync import measured
from dsv4prof.sync.measured import Measurement, Meta, Truth
from dsv4prof.sync.measured.comparing import compare, contradictions, version_of


def truth(torch: str = "2.11.0", hip: str | None = None, **verdicts: bool | None) -> Truth:
    rows = [Measurement(id=id, call=f"{id}()", syncs=syncs, warned=int(bool(syncs))) for id, syncs in verdicts.items()]
    return Truth(Meta(torch=torch, hip=hip, cuda=None if hip else "13.0", device="d"), rows)


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    before = truth(item=True, sum_alone=False, broken=None)
    measured.write(path, before)
    after = measured.read(path)
    assert (after.meta, after.rows) == (before.meta, before.rows)
    assert b'"format":"dsv4prof.truth/1"' in path.read_bytes().splitlines()[0]


def test_a_file_from_before_the_format_had_a_name_is_read(tmp_path: Path) -> None:
    path = tmp_path / "old.jsonl"
    path.write_text(
        '{"meta": {"torch": "2.10.0", "cuda": "12.8", "hip": null, "device": "A", "prelude": "x = 1"}}\n'
        '{"id": "a", "kind": "k", "setup": "", "call": "f()", "needs": "", "syncs": true, "slow_ms": 20.1, '
        '"warned": 1, "runtime_sync": {"cudaStreamSynchronize": 1}, "memcpy": {}, "cuda_sync": {}, "ops": [], '
        '"why": "w", "fix": "x"}\n'
    )
    (row,) = measured.read(path).rows
    assert (row.syncs, row.slow_ms, row.why) == (True, 20.1, "w")


@pytest.mark.parametrize(
    "text",
    ["", "not json\n", '{"meta": {"format": "dsv4prof.truth/99"}}\n', '{"meta": {}}\n{"id": 3}\n', '{"rows": []}\n'],
)
def test_other_files_are_refused_in_a_sentence(tmp_path: Path, text: str) -> None:
    path = tmp_path / "t.jsonl"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        measured.read(path)
    assert str(path) in str(caught.value)
    assert caught.value.hint


def test_the_shipped_cases_compile_and_are_more_than_what_was_measured_first() -> None:
    cases = measured.cases().cases
    assert len({case.id for case in cases}) == len(cases) >= 307 + 80
    for case in cases:
        for text in (case.setup, case.call, case.after):
            compile(text, case.id, "exec")
        assert case.needs in ("", "cuda", "pin", "nccl")


def test_every_shipped_measurement_is_of_a_shipped_case() -> None:
    known = {case.id: case.call for case in measured.cases().cases}
    for path in measured.shipped():
        for row in measured.read(path).rows:
            assert known.get(row.id) == row.call


def test_drift_names_changes_new_and_gone_and_leaves_failures_out() -> None:
    drift = compare(truth(a=True, b=True, c=False, d=True, e=True), truth(a=True, b=False, c=None, e=None, f=True))
    assert drift.agreeing == 1
    assert [(change.id, change.before, change.after) for change in drift.changed] == [("b", True, False)]
    assert (drift.new, drift.gone) == (["f"], ["d"])


def test_a_change_is_explained_where_the_catalogue_names_the_version() -> None:
    old = truth(set_idx_pyscalar=True, item=True)
    drift = compare(old, truth(torch="2.14.0", set_idx_pyscalar=False, item=False))
    assert {change.id: change.explained for change in drift.changed} == {"set_idx_pyscalar": True, "item": False}
    assert drift.changed[0].forms == ("assign-index-number",)


def test_a_call_that_no_longer_warns_is_told() -> None:
    quiet = truth(item=True)
    quiet.rows[0] = Measurement(id="item", call="item()", syncs=True, warned=0)
    assert compare(truth(item=True), quiet).warned == ["item"]


def test_the_catalogue_is_contradicted_by_a_measurement_of_its_versions_alone() -> None:
    assert [one.case for one in contradictions(truth(item=False, sum_alone=True))] == ["item", "sum_alone"]
    assert contradictions(truth(torch="2.14.1", set_elem_pyscalar=False)) == []
    assert contradictions(truth(torch="2.13.1", set_elem_pyscalar=False)) != []
    assert contradictions(truth(item=None)) == []


def test_versions_are_compared_by_two_numbers() -> None:
    assert version_of("2.11.0+cu130") == (2, 11)
    assert version_of("2.9.1") < version_of("2.11.0+rocm7.0")
