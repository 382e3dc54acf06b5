"""Labels: what counts as found, what as false, and files that are no labels."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dsv4prof.errors import InputError
from dsv4prof.sync.code.found import Found
from dsv4prof.sync.code.living.labels import Site, judge, read_labels


def found(line: int, level: str, *, end: int | None = None, code: str = "DSV101", path: str = "m.py") -> Found:
    return Found(
        path=path, line=line, end_line=line, column=0, end_column=1, statement_line=line, statement_end=end or line,
        code=code, form="item", level=level, function="f", text="x.item()", reason="because",
    )  # fmt: skip


def site(line: int, label: str, file: str = "m.py") -> Site:
    return Site(file=file, line=line, label=label)


def test_the_surest_level_at_a_site_decides() -> None:
    sites = [site(1, "sync"), site(2, "sync"), site(3, "no_sync"), site(4, "no_sync"), site(5, "sync")]
    findings = [
        found(1, "possible"),
        found(1, "certain"),
        found(2, "possible"),
        found(3, "likely"),
        found(4, "possible"),
    ]
    outcome = judge(findings, sites, {"m.py"})
    assert (outcome.recall, outcome.false_rate) == (1 / 3, 1 / 2)
    assert [(m.site.line, m.level) for m in outcome.misses] == [(2, "possible"), (5, "")]
    assert [(m.site.line, m.level, m.codes, m.found_reason) for m in outcome.false] == [
        (3, "likely", ["DSV101"], "because")
    ]
    assert outcome.by_level == {
        "certain": {"sync": 1, "no_sync": 0},
        "likely": {"sync": 0, "no_sync": 1},
        "possible": {"sync": 1, "no_sync": 1},
        "none": {"sync": 1, "no_sync": 0},
    }


def test_a_site_meets_every_line_of_the_statement_and_no_other() -> None:
    findings = [found(3, "certain", end=6)]
    lines = [judge(findings, [site(line, "sync")], {"m.py"}).found for line in range(2, 8)]
    assert lines == [0, 1, 1, 1, 1, 0]


def test_only_syncs_are_compared() -> None:
    assert judge([found(1, "certain", code="DSV202")], [site(1, "no_sync")], {"m.py"}).flagged == 0


def test_a_site_in_a_file_that_is_not_there_is_a_miss_and_listed() -> None:
    outcome = judge([], [site(1, "sync", "gone.py"), site(1, "no_sync", "m.py")], {"m.py"})
    assert outcome.unknown_files == ["gone.py"]
    assert outcome.misses[0].unknown_file
    assert (outcome.recall, outcome.false_rate) == (0.0, 0.0)


def test_rates_of_nothing_are_unknown() -> None:
    outcome = judge([], [site(1, "sync")], {"m.py"})
    assert outcome.false_rate is None
    assert judge([], [site(1, "no_sync")], {"m.py"}).recall is None


def test_reading(tmp_path: Path) -> None:
    file = tmp_path / "l.jsonl"
    more = {"file": "./a\\b.py", "line": 3, "label": "sync", "reason": "why", "token": "x", "pattern": "y"}
    file.write_text(json.dumps(more) + "\n\n")
    (read,) = read_labels(file)
    assert (read.file, read.line, read.reason) == ("a/b.py", 3, "why")


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "line 2"),
        ("[]", "line 2"),
        ('{"file": "a.py", "line": "3", "label": "sync"}', "line 2"),
        ('{"file": "a.py", "label": "sync"}', "line 2"),
        ('{"file": "a.py", "line": 3, "label": "maybe"}', "line 2: the label is 'maybe'"),
        ('{"file": "a.py", "line": 0, "label": "sync"}', "line 2: line 0"),
    ],
)
def test_a_bad_line_is_named(line: str, said: str, tmp_path: Path) -> None:
    file = tmp_path / "l.jsonl"
    file.write_text('{"file": "a.py", "line": 3, "label": "sync"}\n' + line + "\n")
    with pytest.raises(InputError, match=said):
        read_labels(file)


@pytest.mark.parametrize(("data", "said"), [(b"", "no labelled site"), (b"\xff\n", "UTF-8"), (None, "No such file")])
def test_a_file_without_sites_is_refused(data: bytes | None, said: str, tmp_path: Path) -> None:
    file = tmp_path / "l.jsonl"
    if data is not None:
        file.write_bytes(data)
    with pytest.raises(InputError, match=said):
        read_labels(file)
