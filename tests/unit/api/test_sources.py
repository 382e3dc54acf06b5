"""What a user names, and what that stands for."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from dsv4prof.api import analyze, merge
from dsv4prof.errors import UsageError
from dsv4prof.model.session import CallSite, Outcome, RankCoordinates, RankRecord, WindowRecord
from dsv4prof.recorder.sessions import assemble, create_session
from dsv4prof.recorder.sink import write_record
from traces import document, note, op, write


@pytest.fixture
def session(tmp_path: Path) -> Path:
    """A session of two ranks with one host read each, whose line only the manifest knows; merged."""
    folder = create_session(tmp_path / "sessions", name="small", world_size=2)
    events = [
        note("dsv4.step#0 kind=decode requests=1 rows=4", 0, 100),
        note("dsv4.span attach", 10, 50),
        op("aten::repeat_interleave", 20, 20),
        op("aten::item", 22, 10),
        op("aten::_local_scalar_dense", 24, 5),
    ]
    site = CallSite("attach", "aten::repeat_interleave", "Tensor", "/x/metadata.py", 88, "attach_meta", 1)
    for rank in range(2):
        trace = write(folder / f"rank{rank}.trace.json", document(events, rank=rank, world=2, trace_id=f"T{rank}"))
        here = RankCoordinates(rank=rank, world_size=2)
        write_record(
            folder,
            RankRecord(
                coordinates=here,
                outcome=Outcome.COMPLETE,
                windows=[WindowRecord(steps=1, trace=trace.name)],
                call_sites=[site],
            ),
        )
    assemble(folder)
    merge([str(folder)])
    return folder


def lines(*inputs: str) -> list[int | None]:
    return [read["line"] for read in analyze(inputs).data["host_reads"]]


@pytest.mark.parametrize("names", [["merged.json.gz"], ["rank0.trace.json", "rank1.trace.json"], ["rank1.trace.json"]])
def test_files_of_a_session_keep_its_call_lines(names: list[str], session: Path) -> None:
    report = analyze([str(session / name) for name in names])
    assert [read["line"] for read in report.data["host_reads"]] == [88]
    assert report.provenance.session == session.name[-4:]


def test_files_of_two_folders_belong_to_no_session(session: Path, tmp_path: Path) -> None:
    elsewhere = shutil.copy(session / "rank1.trace.json", tmp_path)
    assert lines(str(session / "rank0.trace.json"), str(elsewhere)) == [None]


def test_a_broken_manifest_does_not_hide_the_traces_beside_it(session: Path) -> None:
    (session / "manifest.json").write_text("{}")
    assert lines(str(session / "merged.json.gz")) == [None]


def test_a_part_of_a_session_is_not_merged_into_its_folder(
    session: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = (session / "merged.json.gz").read_bytes()
    monkeypatch.chdir(tmp_path)
    report = merge([str(session / "rank0.trace.json")], allow_partial=True)
    assert report.data["output"] == "merged.json.gz"
    assert report.next_command == "dsv4prof analyze merged.json.gz"
    assert (session / "merged.json.gz").read_bytes() == before


@pytest.mark.parametrize("names", [["merged.json.gz"], ["rank0.trace.json", "rank1.trace.json"], ["plain"]])
def test_a_window_of_what_is_no_session_is_refused(names: list[str], session: Path) -> None:
    (session / "plain").mkdir()
    shutil.copy(session / "rank0.trace.json", session / "plain")
    for run in (analyze, merge):
        with pytest.raises(UsageError, match="no session and has no window 'decode'"):
            run([str(session / name) for name in names], window="decode")
    analyze([str(session / name) for name in names])
