"""A baseline knows old findings after edits, tells new ones, and refuses to be misread or to destroy a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dsv4prof.errors import InputError, OutputError
from dsv4prof.model.finding import Severity, SourceFinding
from dsv4prof.sync.baseline import check_target, compare, encode_baseline, make_baseline, read_baseline
from dsv4prof.sync.code.living.fingerprints import Identity, fingerprints


def findings(*identities: tuple[str, str, str]) -> list[SourceFinding]:
    """(path, function, text) each; lines count up and must not matter."""
    named = [Identity(code="DSV101", path=path, function=function, text=text) for path, function, text in identities]
    return [
        SourceFinding(
            code=each.code, severity=Severity.NOTE, message="m", path=each.path, line=line, end_line=line,
            level="likely", function=each.function, text=each.text, fingerprint=name.whole, moved=name.moved,
        )
        for line, (each, name) in enumerate(zip(named, fingerprints(named), strict=True), 1)
    ]  # fmt: skip


OLD = [("a.py", "f", "x.item()"), ("a.py", "f", "x.item()"), ("a.py", "g", "y.item()")]


def test_written_and_read_it_is_the_same(tmp_path: Path) -> None:
    made = make_baseline(findings(*OLD), "dsv4prof 9")
    file = tmp_path / "b.json"
    file.write_bytes(encode_baseline(made))
    assert read_baseline(file) == made
    assert made.counts == {"DSV101": 3}
    assert encode_baseline(made) == encode_baseline(make_baseline(findings(*OLD)[::-1], "dsv4prof 9"))
    assert b'"line"' not in encode_baseline(made)


def test_one_more_of_the_same_is_new() -> None:
    comparison = compare(findings(*OLD[:2], OLD[0], OLD[2]), make_baseline(findings(*OLD), "t"))
    assert [each.status for each in comparison.findings] == ["unchanged", "unchanged", "new", "unchanged"]
    assert comparison.gone == []


def test_one_less_is_gone() -> None:
    comparison = compare(findings(*OLD[1:]), make_baseline(findings(*OLD), "t"))
    assert [each.status for each in comparison.findings] == ["unchanged", "unchanged"]
    assert [entry.function for entry in comparison.gone] == ["f"]


def test_a_function_that_moved_is_known_and_a_copy_of_it_is_not() -> None:
    moved = compare(findings(*OLD[:2], ("b.py", "K.g", "y.item()")), make_baseline(findings(*OLD), "t"))
    assert [each.status for each in moved.findings] == ["unchanged", "unchanged", "moved"]
    assert moved.gone == []
    copied = compare(findings(*OLD, ("b.py", "g", "y.item()")), make_baseline(findings(*OLD), "t"))
    assert [each.status for each in copied.findings] == ["unchanged"] * 3 + ["new"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda text: text[:100], "is damaged"),
        (lambda text: "[]", "it is no baseline"),
        (lambda text: "{}", "it is no baseline"),
        (lambda text: text.replace("baseline/1", "baseline/2"), "its schema is 'dsv4prof.baseline/2'"),
        (lambda text: text.replace('"level": "likely"', '"level": 3', 1), "is damaged"),
        (lambda text: json.dumps({**json.loads(text), "entries": json.loads(text)["entries"][1:]}), "counts"),
        (lambda text: "\udcff", "is damaged"),
    ],
)
def test_a_damaged_one_is_refused(change: object, said: str, tmp_path: Path) -> None:
    file = tmp_path / "b.json"
    text = encode_baseline(make_baseline(findings(*OLD), "t")).decode()
    file.write_bytes(change(text).encode("utf-8", "surrogateescape"))  # type: ignore[operator]
    with pytest.raises(InputError, match=said) as caught:
        read_baseline(file)
    assert "\n" not in caught.value.message


def test_one_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        read_baseline(tmp_path / "b.json")


def test_no_other_file_is_overwritten(tmp_path: Path) -> None:
    file = tmp_path / "precious.json"
    file.write_text('{"a": 1}')
    with pytest.raises(OutputError, match="is no baseline"):
        check_target(file)
    with pytest.raises(OutputError, match="folder"):
        check_target(tmp_path)
    with pytest.raises(OutputError, match="no folder"):
        check_target(tmp_path / "none" / "b.json")
    file.write_bytes(encode_baseline(make_baseline([], "t")))
    check_target(file)
    check_target(tmp_path / "new.json")
