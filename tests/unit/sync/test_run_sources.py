"""Source that moved on since a run: its waits are found by their text, and none is put on a line that it is not of."""

from __future__ import annotations

from pathlib import Path

from dsv4prof.model.syncs import Kind
from dsv4prof.sync.exercised import Ran, RanFunction, RanSite
from dsv4prof.sync.run_sources import as_of, digest, with_sources

SOURCE = "def build(lens):\n    total = lens.sum().item()\n    return total\n"


def run_of(path: Path, line: int = 2) -> Ran:
    site = RanSite(file=str(path), line=line, function="build", code="DSV101", kind=Kind.SYNC, count=3)
    function = RanFunction(file=str(path), function="build", line=1, lines=(2, 3))
    return with_sources(Ran(run="old", sites=(site,), functions=(function,)))


def test_an_export_knows_the_text_of_what_waited(tmp_path: Path) -> None:
    path = tmp_path / "meta.py"
    path.write_text(SOURCE)
    ran = run_of(path)
    assert ran.sites[0].text == "total = lens.sum().item()"
    assert ran.files == {str(path): digest(SOURCE.encode())}
    assert as_of(ran, lambda _: SOURCE.replace("\n", "\r\n").encode()) == (ran, [])


def test_a_wait_moves_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "meta.py"
    path.write_text(SOURCE)
    now, notes = as_of(run_of(path), lambda _: ("import torch\n\n\n" + SOURCE).encode())
    assert now.sites[0].line == 5
    assert (now.functions[0].line, now.functions[0].lines) == (0, ())
    assert notes == ["meta.py has changed since run old: waits are found again by their text"]


def test_a_wait_whose_line_is_gone_or_there_twice_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "meta.py"
    path.write_text(SOURCE)
    for later in (SOURCE.replace(".item()", ""), SOURCE + SOURCE.replace("build", "other")):
        now, notes = as_of(run_of(path), {str(path): later.encode()}.get)
        assert now.sites == ()
        assert "its waits of line 2 are left out" in notes[0]


def test_files_that_are_not_looked_at_or_were_never_there_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "meta.py"
    path.write_text(SOURCE)
    ran = run_of(path)
    assert as_of(ran, lambda _: None) == (ran, [])
    missing = run_of(tmp_path / "<string>")
    assert missing.files == {}
    assert as_of(missing, lambda _: b"x") == (missing, [])
