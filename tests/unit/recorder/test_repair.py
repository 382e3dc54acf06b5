"""A file is trusted after it was read back, and a name is mended without touching its neighbours."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dsv4prof.recorder.repair import json_fault, repair_names

EVENT = """  {
    "ph": "X",
    "cat": "%s",
    "name": "%s",
    "pid": 1,
    "tid": 2
  }"""


def trace_of(folder: Path, *names: str) -> Path:
    path = folder / "t.json"
    metadata = '  {\n    "ph": "M",\n    "name": "process_name",\n    "ts": 1.5,\n    "pid": 1\n  }'
    events = ",\n".join([metadata, *(EVENT % ("cpu_op", name) for name in names)])
    path.write_text('{"traceEvents": [\n' + events + "\n]}")
    return path


@pytest.mark.parametrize(
    ("content", "words"), [(None, "no file"), (b"", "empty"), (b'{"a": [1, 2', "truncated"), (b'{"a": 1}x', "trailing")]
)
def test_faults_are_named(tmp_path: Path, content: bytes | None, words: str) -> None:
    path = tmp_path / "t.json"
    if content is not None:
        path.write_bytes(content)
    assert words in (json_fault(path) or "")


def test_a_whole_file_has_no_fault_and_is_left_alone(tmp_path: Path) -> None:
    path = trace_of(tmp_path, "aten::add", r"escaped \" quote", r"tab\t")
    before = path.read_bytes()
    assert json_fault(path) is None
    assert repair_names(path) == 0
    assert path.read_bytes() == before


def test_only_the_broken_names_are_mended(tmp_path: Path) -> None:
    path = trace_of(tmp_path, "aten::add", 'a"b', "two\nlines", r"bad \d escape", r"good \n escape")
    assert json_fault(path) is not None
    assert repair_names(path) == 3
    assert json_fault(path) is None
    names = [event["name"] for event in json.loads(path.read_text())["traceEvents"]]
    assert names == ["process_name", "aten::add", 'a"b', "two\nlines", r"bad \d escape", "good \n escape"]
