"""Files that other tools, disks and shells have touched: every whole event is kept, and what is odd is said."""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path
from typing import Any

import pytest

from dsv4prof.api import merge as merge_report
from dsv4prof.api import narrow
from dsv4prof.trace.check import check_file
from dsv4prof.trace.load import load_rank
from traces import document, kernel, op, write


def _text(count: int = 50) -> bytes:
    return json.dumps(document([op(f"n{number}", number, 1) for number in range(count)], rank=0, world=1)).encode()


@pytest.mark.parametrize(
    ("before", "after"),
    [(b', {"ph": "X", "cat": "cpu_op", "name": "n7"', b'l {"ph": "X", "cat": "cpu_op", "name": "n7"'),
     (b', {"ph": "X", "cat": "cpu_op", "name": "n7"', b', xyz {"ph": "X", "cat": "cpu_op", "name": "n7"'),
     (b', {"ph": "X", "cat": "cpu_op", "name": "n7"', b' ] , {"ph": "X", "cat": "cpu_op", "name": "n7"')],
    ids=["comma", "word", "bracket"],
)  # fmt: skip
def test_a_stray_byte_between_events_costs_none(tmp_path: Path, before: bytes, after: bytes) -> None:
    text = _text()
    assert text.count(before) == 1
    trace = load_rank(write(tmp_path / "rank0.json", text.replace(before, after)))
    assert [event.name for event in trace.slices] == [f"n{number}" for number in range(50)]
    assert trace.dropped or trace.notes


def test_a_log_line_before_the_document_is_passed_over(tmp_path: Path) -> None:
    trace = load_rank(write(tmp_path / "rank0.json", b"W0101 some warning\n" + _text()))
    assert len(trace.slices) == 50


def test_elements_that_are_no_events_cost_only_themselves(tmp_path: Path) -> None:
    text = _text().replace(b'"traceEvents": [', b'"traceEvents": [null, 7, ').replace(b'"n9"', b'"n"9"')
    trace = load_rank(write(tmp_path / "rank0.json", text))
    assert len(trace.slices) == 49
    assert sum(dropped.count for dropped in trace.dropped) == 2, "the stray stretch and the damaged event"


@pytest.mark.parametrize(
    "odd", [{"pid": 1.0}, {"pid": None}, {"tid": 2.0}, {"name": None}, {"cat": 5}, {"name": 3}], ids=str
)
def test_values_of_another_kind_keep_their_event(tmp_path: Path, odd: dict[str, Any]) -> None:
    trace = load_rank(write(tmp_path / "rank0.json", document([{**op("a", 1, 2), **odd}, op("b", 5, 1)])))
    assert len(trace.slices) == 2 and trace.dropped == []
    assert all(isinstance(event.track.pid, int) for event in trace.slices)


def test_times_as_text_are_exact_and_said(tmp_path: Path) -> None:
    path = write(tmp_path / "rank0.json", {"traceEvents": [op("a", "1790857026123456.125", "0.25")]})  # type: ignore[arg-type]
    assert load_rank(path).slices[0].start_ns == 1_790_857_026_123_456_125
    report = merge_report([str(path)], output=tmp_path / "m.json")
    assert report.verdict.exit_code == 0
    assert any("times are text" in note for note in report.notes)
    assert any("since 1970" in note for note in report.notes)


def test_a_track_spelled_two_ways_is_one_row(tmp_path: Path) -> None:
    one = b'{"ph":"X","cat":"c","name":"a","pid":"\xc3\xa9","tid":1,"ts":0,"dur":10}'
    other = b'{"ph":"X","cat":"c","name":"b","pid":"\\u00e9","tid":1,"ts":5,"dur":10}'
    path = write(tmp_path / "rank0.json", b'{"traceEvents":[' + one + b"," + other + b"]}")
    merge_report([str(path)], output=tmp_path / "m.json")
    assert check_file(tmp_path / "m.json").slices_out == 2


def test_a_skippable_frame_may_come_first(tmp_path: Path) -> None:
    zstandard = pytest.importorskip("zstandard")
    frame = struct.pack("<II", 0x184D2A53, 5) + b"hello"
    (tmp_path / "rank0.json.zst").write_bytes(frame + zstandard.ZstdCompressor().compress(_text()) + frame)
    assert len(load_rank(tmp_path / "rank0.json.zst").slices) == 50


def test_without_its_checksum_a_file_is_complete_and_not_whole(tmp_path: Path) -> None:
    stream = zlib.compressobj(wbits=31)
    data = stream.compress(_text()) + stream.flush()
    (tmp_path / "rank0.json.gz").write_bytes(data[:-8])
    trace = load_rank(tmp_path / "rank0.json.gz")
    assert trace.complete and len(trace.slices) == 50
    assert any("checksum" in note for note in trace.notes)


def test_a_damaged_stream_gives_what_is_before_the_damage(tmp_path: Path) -> None:
    stream = zlib.compressobj(wbits=31)
    text = _text(400)
    data = bytearray(stream.compress(text) + stream.flush())
    data[len(data) // 2] ^= 0x40
    (tmp_path / "rank0.json.gz").write_bytes(bytes(data))
    whole, oracle = b"", zlib.decompressobj(31)
    for byte in data:
        try:
            whole += oracle.decompress(bytes([byte]))
        except zlib.error:
            break
    same = next((at for at, (a, b) in enumerate(zip(whole, text, strict=False)) if a != b), len(whole))
    expected = text[:same].count(b'"dur": 1}')
    assert expected > 10
    assert len(load_rank(tmp_path / "rank0.json.gz").slices) >= expected


def test_a_damaged_file_behind_a_url_is_mended_as_well(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    path = write(tmp_path / "rank0.json", _text().replace(b'"ts": 3,', b'"ts": NaN,'))
    assert len(load_rank(f"file://{path}").slices) == 49


def test_a_part_stays_on_the_axis_of_the_whole(tmp_path: Path) -> None:
    path = write(tmp_path / "rank0.json", document([op("a", 0, 1), kernel("k", 100, 5), kernel("l", 300, 5)]))
    for categories in (None, "kernel"):
        _, narrowing = narrow("90us:120us", categories=categories)
        merge_report([str(path)], output=tmp_path / "m.json", narrowing=narrowing, force=True)
        events = json.loads((tmp_path / "m.json").read_text())["traceEvents"]
        assert [event["name"] for event in events if event["ph"] == "X"] == ["k"]


def test_what_was_left_out_is_known_when_it_is_merged_again(tmp_path: Path) -> None:
    good = write(tmp_path / "rank0.json", document([op("a", 0, 1)], rank=0, world=1))
    bad = write(tmp_path / "rank1.json", b"{")
    assert merge_report([str(good), str(bad)], output=tmp_path / "m.json").verdict.exit_code == 1
    again = merge_report([str(tmp_path / "m.json")], output=tmp_path / "n.json")
    assert again.verdict.exit_code == 1
    assert "rank1.json" in again.data["unreadable"][0]


def test_files_of_a_grid_of_groups_are_numbered_and_a_hole_is_missing(tmp_path: Path) -> None:
    info = {"distributedInfo": {"rank": 0, "world_size": 1}}
    names = ["x-TP-0-PP-0", "x-TP-1-PP-0", "x-TP-0-PP-1"]
    files = [write(tmp_path / f"{name}.json", {**document([op("a", 0, 1)]), **info}) for name in names]
    report = merge_report([str(path) for path in files], output=tmp_path / "m.json")
    assert [rank["rank"] for rank in report.data["ranks"]] == [0, 1, 2]
    assert report.data["missing_ranks"] == [3]
    assert report.verdict.exit_code == 1
    assert any("numbered by their places" in note for note in report.notes)


def test_a_whole_grid_of_groups_is_no_fault(tmp_path: Path) -> None:
    info = {"distributedInfo": {"rank": 0, "world_size": 1}}
    names = [f"x-TP-{tp}-DP-{dp}-EP-{tp}" for tp in range(2) for dp in range(2)]
    files = [write(tmp_path / f"{name}.json", {**document([op("a", 0, 1)]), **info}) for name in names]
    report = merge_report([str(path) for path in files], output=tmp_path / "m.json", strict=True)
    assert report.verdict.exit_code == 0
    assert [rank["rank"] for rank in report.data["ranks"]] == [0, 1, 2, 3]
