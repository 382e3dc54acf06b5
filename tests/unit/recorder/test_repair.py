"""A file is trusted after it was read back, and a name is mended without touching its neighbours."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from dsv4prof.recorder import repair
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


def test_the_names_of_threads_are_mended_and_bytes_that_are_no_text(tmp_path: Path) -> None:
    """Linux cuts a thread's name at 15 bytes, inside a character if need be."""
    path = trace_of(tmp_path, "aten::add")
    label = b'  {\n    "ph": "M",\n    "name": "thread_name",\n    "args": {\n      "name": "%s"\n    }\n  },\n'
    data = path.read_bytes().replace(b"[\n", b"[\n" + label % b"caf\xc3" + label % b'say "hi"\n', 1)
    path.write_bytes(data)
    assert json_fault(path) is not None
    assert repair_names(path) == 2
    assert json_fault(path) is None
    threads = [event["args"]["name"] for event in json.loads(path.read_text())["traceEvents"] if "args" in event]
    assert threads == ["caf\ufffd", 'say "hi"\n']


@pytest.mark.parametrize("piece", [1, 64, 1 << 20], ids=["every seam", "small pieces", "one piece"])
@pytest.mark.parametrize("damage", ["none", "cut", "byte", "utf-8"])
def test_cut_into_pieces_or_not_the_verdict_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, piece: int, damage: str
) -> None:
    """Against Python's own reader, on files that Kineto would write and on damaged ones."""
    monkeypatch.setattr(repair, "_PIECE", piece)
    monkeypatch.setattr(repair, "_LONGEST", max(8 * piece, 512))
    rng = random.Random(5)
    for round_ in range(150):
        names = [rng.choice(["aten::add", "é", r"a\nb", "}, {", r"\" }]}"]) for _ in range(rng.randint(0, 12))]
        data = bytearray(trace_of(tmp_path, *names).read_bytes().replace(b"]}", b'], "traceName": "x", "a": [1]}'))
        if damage == "cut":
            del data[rng.randrange(1, len(data)) :]
        elif damage == "byte":
            data[rng.randrange(len(data))] = rng.choice(b'"\\{}[],: \n1a')
        elif damage == "utf-8":
            data[rng.randrange(len(data))] = 0xC3
        path = tmp_path / "damaged.json"
        path.write_bytes(data)
        try:
            json.loads(bytes(data).decode(), parse_constant=lambda word: 1 / 0)
            whole = True
        except (ValueError, ZeroDivisionError):
            whole = False
        assert (json_fault(path) is None) == whole, (round_, bytes(data))


@pytest.mark.parametrize(
    ("content", "whole"),
    [
        (b'{"a": 1}' + b" " * 4000 + b"x", False),
        (b'{"a": "' + b"y" * 4000 + b'"}', True),
        (b'[{"a": 1\n  },\n  {\n"b": 2}]', True),
        (b'{"a": 1\n  },\n  {\n"b": 2}', False),
        (b'{"a": [{"x": [{\n  },\n  {\n}]}, {\n  },\n  {\n}]}', True),
        (b'{"a": [{\n  },\n  {\n}], "b": [{\n  },\n  {\n}]}', True),
        (b'{"a": [{\n  },\n  {\n}, ]}', False),
        (b'{"a": "},\n  {\n"}', False),
    ],
    ids=["junk behind", "no seam", "an array", "two values", "seams inside", "two arrays", "a comma", "in a string"],
)
def test_files_that_are_no_run_of_events_are_decided_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, whole: bool
) -> None:
    monkeypatch.setattr(repair, "_PIECE", 16)
    monkeypatch.setattr(repair, "_LONGEST", 64)
    path = tmp_path / "t.json"
    path.write_bytes(content)
    assert (json_fault(path) is None) == whole


def test_an_event_bigger_than_the_longest_piece_is_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repair, "_PIECE", 64)
    monkeypatch.setattr(repair, "_LONGEST", 256)
    assert json_fault(trace_of(tmp_path, "a", "b" * 5000, "c")) is None
    assert json_fault(trace_of(tmp_path, "a", "b" * 5000 + '"', "c")) is not None
