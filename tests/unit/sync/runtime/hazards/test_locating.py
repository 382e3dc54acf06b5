"""What somebody means who names a place, against the source that is here."""

from __future__ import annotations

import pytest

from dsv4prof.model.syncs import Frame
from dsv4prof.sync.runtime.hazards.events import HostWaits
from dsv4prof.sync.runtime.hazards.locating import located, waits_in_file
from dsv4prof.sync.runtime.hazards.log import FORMAT, Log
from dsv4prof.sync.runtime.hazards.replay import Place

SOURCE = """\
class Builder:
    @staticmethod
    def build(
        lens,
        rows,
    ):
        total = int(
            lens.sum(),
        )
        if (
            lens.any()
        ):
            total += lens.max().item()
        for each in rows: each.item()
        return total
"""


@pytest.fixture
def source(tmp_path):
    path = tmp_path / "package" / "builder.py"
    path.parent.mkdir()
    path.write_text(SOURCE)
    return path


def log_of(*frames):
    waits = [HostWaits("aten::item", site, 0, stream=0) for site in range(len(frames))]
    return Log(
        format=FORMAT, command="", steps=1, sites=[(frame,) for frame in frames], regions=[""], totals=[], found=[],
        lost=0, unheard=0, events=waits,
    )  # fmt: skip


def asked(text, log):
    return located(Place.parse(text), log)


@pytest.mark.parametrize(
    ("line", "span"),
    [(7, (7, 9)), (8, (7, 9)), (9, (7, 9)), (10, (10, 12)), (11, (10, 12)), (13, (13, 13)), (14, (14, 14))],
)
def test_a_line_stands_for_its_whole_statement_without_its_body(source, line, span):
    spot = asked(f"builder.py:{line}", log_of(Frame(str(source), 8, "Builder.build")))
    assert spot.path == source and spot.place.span == span and not spot.notes
    assert str(spot.place) == f"builder.py:{line}"


@pytest.mark.parametrize("line", [2, 3, 5])
def test_a_line_that_begins_a_function_stands_for_all_of_it(source, line):
    frame = Frame(str(source), 8, "Builder.build")
    spot = asked(f"builder.py:{line}", log_of(frame))
    assert spot.place.function == "Builder.build" and spot.place.fits(frame) and "begins Builder.build" in spot.notes[0]


def test_what_is_not_in_the_file_is_said(source):
    log = log_of(Frame(str(source), 8, "Builder.build"), Frame(str(source), 8, "Builder.build"))
    assert asked("builder.py:99", log).notes == ["builder.py has 15 lines"]
    assert asked("builder.py:biuld", log).notes == ["builder.py has no function biuld; it has build"]
    assert asked("builder.py:Builder", log).notes == []
    assert "was not found here" in asked("elsewhere.py:3", log).notes[0]
    assert waits_in_file(log, Place.parse("builder.py:99")) == ["line 8 (Builder.build), 2 x"]


def test_a_file_is_known_by_any_of_its_names(source, tmp_path, monkeypatch):
    log = log_of(Frame(str(source), 8, "Builder.build"))
    link = tmp_path / "link"
    link.symlink_to(source.parent)
    monkeypatch.chdir(tmp_path)
    for name in ("builder.py", "package/builder.py", "./package/../package/builder.py", str(source), "link/builder.py"):
        place = asked(f"{name}:8", log).place
        assert place.fits(log.sites[0][0]), name


def test_files_of_one_name_are_told_apart_or_all_named(source, tmp_path):
    other = tmp_path / "other" / "builder.py"
    other.parent.mkdir()
    other.write_text("pass\n")
    log = log_of(Frame(str(source), 8, "Builder.build"), Frame(str(other), 1, "<module>"))
    assert "2 files of the run have this name" in asked("builder.py:8", log).notes[0]
    assert asked("other/builder.py:1", log).notes == []


def test_source_that_is_gone_or_no_python_is_no_trouble(source):
    gone = log_of(Frame("/nowhere/builder2.py", 8, "f"))
    assert asked("builder2.py:8", gone).place.line == 8
    source.write_text("def (\n")
    spot = asked("builder.py:1", log_of(Frame(str(source), 1, "f")))
    assert spot.place.span is None and spot.path == source
