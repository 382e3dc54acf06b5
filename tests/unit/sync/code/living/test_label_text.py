"""Label files as editors and other languages write them."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsv4prof.sync.code.living.labels import read_labels

LINE = '{"file": "pkg\\\\m.py", "line": 7, "label": "sync", "reason": "%s"}'


@pytest.mark.parametrize("within", ["\u2028", "\u2029", "\x85", "\x7f"])
def test_what_unicode_takes_for_an_end_of_line_ends_no_label(within: str, tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    path.write_bytes((LINE % within + "\n").encode())
    (site,) = read_labels(path)
    assert site.reason == within


def test_a_mark_of_byte_order_and_line_ends_of_windows(tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    path.write_bytes(f"\ufeff{LINE % 'a'}\r\n\r\n{LINE % 'b'}\r\n".encode())
    assert [(site.file, site.reason) for site in read_labels(path)] == [("pkg/m.py", "a"), ("pkg/m.py", "b")]
