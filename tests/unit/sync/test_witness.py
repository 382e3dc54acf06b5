"""What runs say of a place in source: waited, ran, entered, not run, unknown."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsv4prof.errors import InputError
from dsv4prof.model.syncs import Kind
from dsv4prof.sync.exercised import Ran, RanFunction, RanSite, encode_ran, ran_of_session, read_ran
from dsv4prof.sync.witness import Place, Witnesses
from traces import frame, merged

FILE = "/srv/app/pkg/meta.py"


def _site(line: int, code: str = "DSV105", count: int = 3) -> RanSite:
    return RanSite(file=FILE, line=line, function="Builder.build", code=code, kind=Kind.SYNC, count=count)


def _run(*sites: RanSite, functions: tuple[RanFunction, ...] = (), run: str = "a") -> Ran:
    return Ran(run=run, sites=sites, functions=functions)


def _place(line: int, code: str = "DSV105", function: str = "Builder.build", path: str = "pkg/meta.py") -> Place:
    return Place(path, function, line, line + 1, code)


ENTERED = RanFunction(file=FILE, function="build", line=5, calls=2)
LINES = RanFunction(file=FILE, function="build", line=5, calls=2, lines=(6, 7, 20))


@pytest.mark.parametrize(
    ("runs", "place", "what"),
    [
        ([_run(_site(10))], _place(10), "waited"),
        ([_run(_site(11))], _place(10), "waited"),
        ([_run(_site(12))], _place(10), "unknown"),
        ([_run(_site(10, "DSV101"))], _place(10, "DSV110"), "waited"),
        ([_run(_site(10, "DSV203"))], _place(10), "unknown"),
        ([_run(functions=(LINES,))], _place(20), "ran"),
        ([_run(functions=(LINES,))], _place(30), "not run"),
        ([_run(functions=(ENTERED,))], _place(30), "entered"),
        ([_run(functions=(ENTERED,))], _place(30, function="other"), "not run"),
        ([_run(functions=(ENTERED,))], _place(30, path="other/meta.py"), "not run"),
        ([_run()], _place(30), "unknown"),
        ([_run(functions=(LINES,)), _run(_site(20), run="b")], _place(20), "waited"),
    ],
)
def test_a_place_beside_runs(runs: list[Ran], place: Place, what: str) -> None:
    assert Witnesses(runs).of(place).what == what


def test_counts_and_runs_add_up() -> None:
    witness = Witnesses([_run(_site(10)), _run(_site(10, count=4), run="b"), _run(run="c")]).of(_place(10))
    assert (witness.count, witness.runs) == (7, ("a", "b"))
    assert witness.text == "waited 7 times in run a, b"


def test_the_same_code_is_the_better_match() -> None:
    assert Witnesses([_run(_site(10, "DSV101", 1), _site(10, "DSV105", 5))]).of(_place(10)).count == 5


def test_a_function_waited_when_a_line_of_it_did() -> None:
    whole = Place("pkg/meta.py", "Builder.build", 5, 40)
    assert Witnesses([_run(_site(30, "DSV101"), functions=(LINES,))]).of(whole).what == "waited"
    assert Witnesses([_run(functions=(LINES,))]).of(whole).what == "entered"


def test_sites_of_no_place_are_told() -> None:
    run = _run(_site(10), _site(50))
    assert [site.line for _, site in Witnesses([run]).not_in([_place(10)])] == [50]


def test_an_export_comes_back_as_it_was(tmp_path: Path) -> None:
    run = _run(_site(10), functions=(LINES,))
    path = tmp_path / "run.json"
    path.write_bytes(encode_ran(run))
    assert read_ran(path) == run


@pytest.mark.parametrize("content", [b"", b"[]", b'{"run": 3}', b'{"run": "x", "format": "dsv4prof.syncs/9"}'])
def test_what_is_no_export_is_refused_in_a_sentence(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "run.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"no export of a run|unknown format"):
        read_ran(path)


def test_a_recorded_session_shows_the_functions_of_its_stacks(tmp_path: Path) -> None:
    trace = merged(tmp_path, [frame("pkg/meta.py(5): build", 0, 10), frame("pkg/meta.py(5): build", 20, 10)])
    run = ran_of_session("s1", trace, [])
    assert run.functions == (RanFunction(file="pkg/meta.py", function="build", line=5, calls=2),)
    assert Witnesses([run]).of(_place(30)).text == "exercised in run s1, not seen to wait"
