"""A merge is whole only when no rank lost anything, and the reason is printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsv4prof.api import merge
from dsv4prof.errors import InputError
from dsv4prof.report import render
from traces import Event, document, op, write

WITHOUT_DURATION: Event = {"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "tid": 7, "ts": 3}


@pytest.mark.parametrize(
    ("events", "old", "new", "code", "why"),
    [
        ([op("a", 1, 2), WITHOUT_DURATION], b"", b"", "DSV402", "slice without a valid duration"),
        ([op("a", 1, 2), op("b", 5, 2)], b'"b"', b'"b\x01"', "DSV404", "raw control characters"),
    ],
)
def test_what_a_rank_lost_or_had_mended_exits_one(
    tmp_path: Path, events: list[Event], old: bytes, new: bytes, code: str, why: str
) -> None:
    path = write(tmp_path / "rank0.json", document(events, rank=0, world=1))
    path.write_bytes(path.read_bytes().replace(old, new) if old else path.read_bytes())
    with pytest.raises(InputError, match=why):
        merge([str(path)], output=tmp_path / "out.json", strict=True)
    report = merge([str(path)], output=tmp_path / "out.json")
    assert (report.verdict.exit_code, [finding.code for finding in report.findings]) == (1, [code])
    assert why in render(report)
