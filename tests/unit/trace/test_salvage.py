"""Damaged files keep every whole event, and say what is gone."""

from __future__ import annotations

import gzip
import json
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from isal import igzip

from dsv4prof.errors import InputError
from dsv4prof.trace.inflate import inflate
from dsv4prof.trace.load import load_rank
from dsv4prof.trace.losses import losses
from dsv4prof.trace.merge import merge
from dsv4prof.trace.salvage import salvage
from traces import BASE_NS, document, op, write

EVENTS = [op(f"op{n}", n * 10, 5, **{"External id": n}) for n in range(20)]


def _ends(text: bytes) -> list[int]:
    """Where each event ends in the text of `document(EVENTS)`."""
    ends, position = [], 0
    for event in EVENTS:
        position = text.index(json.dumps(event).encode(), position) + len(json.dumps(event))
        ends.append(position)
    return ends


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_cut_at_any_byte_keeps_every_whole_event(data: st.DataObject) -> None:
    text = json.dumps(document(EVENTS)).encode()
    start = text.index(b'"traceEvents": [') + len(b'"traceEvents": [')
    cut = data.draw(st.integers(start + 1, len(text) - 3))
    kept = salvage(text[:cut])
    assert kept is not None
    assert not kept.complete
    assert len(kept.events) == sum(end <= cut for end in _ends(text))
    assert set(kept.fields) >= {"schemaVersion", "baseTimeNanoseconds"}


def test_a_cut_file_is_marked_and_says_so(tmp_path: Path) -> None:
    text = json.dumps(document(EVENTS)).encode()
    trace = load_rank(write(tmp_path / "rank0.json", text[: _ends(text)[9] + 12]))
    assert not trace.complete
    assert len(trace.slices) == 10
    assert [(d.count, d.reason) for d in trace.dropped] == [(1, "event cut off where the file ends early")]
    assert any("file ends early" in note for note in trace.notes)


def test_a_cut_gzip_keeps_what_can_be_decompressed(tmp_path: Path) -> None:
    many = [op(f"name {n * 7919 % 1000}", n * 10.5, 5, value=n * 31 % 97) for n in range(5000)]
    packed = igzip.compress(json.dumps(document(many)).encode())
    path = tmp_path / "rank0.json.gz"
    path.write_bytes(packed[: len(packed) // 2])
    trace = load_rank(path)
    assert not trace.complete
    assert 1000 < len(trace.slices) < 5000
    assert trace.slices[-1].name == many[len(trace.slices) - 1]["name"]
    assert any("gzip stream is cut" in note for note in trace.notes)


def test_a_gzip_cut_before_any_event_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rank1.json.gz"
    path.write_bytes(igzip.compress(json.dumps(document(EVENTS)).encode())[:25])
    with pytest.raises(InputError, match="gzip stream is cut"):
        load_rank(path)


def test_an_unescaped_quote_costs_one_event(tmp_path: Path) -> None:
    text = json.dumps(document(EVENTS[:5]), indent=1).replace('"op2"', '"{"device": "cpu"}(12): run"')
    trace = load_rank(write(tmp_path / "rank0.json", text.encode()))
    assert [s.name for s in trace.slices] == ["op0", "op1", "op3", "op4"]
    why = "its text is not JSON: a quote that is not escaped before line 32, byte 449"
    assert [(d.count, d.reason) for d in trace.dropped] == [(1, f"damaged event at line 29, byte 399: {why}")]
    assert trace.complete


def test_a_single_stray_quote_costs_one_event(tmp_path: Path) -> None:
    text = json.dumps(document(EVENTS[:5]), indent=1).replace('"op2"', '"op"2"')
    trace = load_rank(write(tmp_path / "rank0.json", text.encode()))
    assert [s.name for s in trace.slices] == ["op0", "op1", "op3", "op4"]
    assert trace.notes == []


@pytest.mark.parametrize(
    ("old", "new", "name", "note"),
    [
        (b"op2", b"o\x01p\n2", "o p 2", "raw control characters"),
        (b"op2", b"op\xff2", "op�2", "not UTF-8"),
        (b"op2", b"op\\ud83d2", "op�2", "lone surrogates"),
        (b"op2", b"\\ud83d\\ude00\x02", "\U0001f600 ", "raw control characters"),
    ],
)
def test_text_faults_are_mended_and_noted(tmp_path: Path, old: bytes, new: bytes, name: str, note: str) -> None:
    text = json.dumps(document(EVENTS[:5]), indent=1).encode().replace(old, new)
    trace = load_rank(write(tmp_path / "rank0.json", text))
    assert [s.name for s in trace.slices][2] == name
    assert len(trace.notes) == 1
    assert note in trace.notes[0]


def test_nan_in_arguments_is_mended_and_nan_as_time_is_counted(tmp_path: Path) -> None:
    text = json.dumps(document(EVENTS[:3]), indent=1)
    text = text.replace('"External id": 1', '"warps": inf, "why": "nan"').replace('"dur": 5', '"dur": NaN', 1)
    trace = load_rank(write(tmp_path / "rank0.json", text.encode()))
    assert [s.name for s in trace.slices] == ["op1", "op2"]
    assert (trace.slices[0].arg("warps"), trace.slices[0].arg("why")) == (None, "nan")
    assert [(d.count, d.reason) for d in trace.dropped] == [(1, "slice without a valid duration")]


def test_of_two_documents_in_one_file_the_first_is_read(tmp_path: Path) -> None:
    text = json.dumps(document(EVENTS[:3])) + json.dumps(document(EVENTS[3:]))
    trace = load_rank(write(tmp_path / "rank0.json", text.encode()))
    assert len(trace.slices) == 3
    assert any("second document" in note for note in trace.notes)


def _base_behind(events: list[dict[str, object]]) -> bytes:
    whole = document(events)  # type: ignore[arg-type]
    return json.dumps(
        {"schemaVersion": 1, "traceEvents": whole["traceEvents"], "baseTimeNanoseconds": BASE_NS}
    ).encode()


def test_values_behind_the_events_survive_a_damaged_event(tmp_path: Path) -> None:
    text = _base_behind(EVENTS[:4]).replace(b'"op2"', b'"o"p"2"')
    trace = load_rank(write(tmp_path / "rank0.json", text))
    assert (trace.base_ns, len(trace.slices), trace.complete) == (BASE_NS, 3, True)


def test_a_cut_behind_the_events_loses_no_event_and_is_still_a_cut(tmp_path: Path) -> None:
    text = _base_behind(EVENTS[:4]).removesuffix(b"}") + b', "traceName": "/tm'
    trace = load_rank(write(tmp_path / "rank0.json", text))
    assert (trace.base_ns, len(trace.slices), trace.complete, trace.dropped) == (BASE_NS, 4, False, [])


def test_a_rank_cut_before_its_base_borrows_it(tmp_path: Path) -> None:
    whole = write(tmp_path / "rank0.json", _base_behind(EVENTS))
    text = _base_behind(EVENTS)
    cut = write(tmp_path / "rank1.json", text[: text.index(b'"op9"')])
    merged = merge([load_rank(whole), load_rank(cut)])
    assert [rank.trace.slices[3].start_ns for rank in merged.ranks] == [BASE_NS + 30_000] * 2
    assert any("base time was behind the cut" in note for note in merged.ranks[1].trace.notes)


@pytest.mark.parametrize("name", ["rank0.json", "rank0.json.gz"])
def test_a_byte_order_mark_is_no_damage(tmp_path: Path, name: str) -> None:
    text = b"\xef\xbb\xbf" + json.dumps(document(EVENTS, host_name="node")).encode()
    trace = load_rank(write(tmp_path / name, text))
    assert (len(trace.slices), trace.notes) == (20, [])
    assert (trace.base_ns, trace.coordinates.host) == (BASE_NS, "node")


_HEAD, _TAIL = b"a" * 3_000_000 + bytes(range(256)) * 40, b"tail " * 900


def _members() -> tuple[bytes, bytes]:
    return gzip.compress(_HEAD), gzip.compress(_TAIL)


def test_members_of_a_gzip_file_follow_each_other() -> None:
    first, second = _members()
    for packed in (first + second, first + second + b"\0" * 100, _named(first) + second):
        read = inflate(packed)
        assert (read.data, read.cut, read.notes) == (_HEAD + _TAIL, None, [])


def _named(member: bytes) -> bytes:
    """The same member with every optional field in its header."""
    fields = (3).to_bytes(2, "little") + b"abc" + b"name\0" + b"comment\0" + b"\0\0"
    return member[:3] + bytes([2 + 4 + 8 + 16]) + member[4:10] + fields + member[10:]


def test_a_wrong_checksum_costs_nothing_and_is_noted() -> None:
    first, second = _members()
    wrong = bytearray(first)
    wrong[-6] ^= 1
    read = inflate(bytes(wrong) + second)
    assert (read.data, read.cut, read.notes) == (_HEAD + _TAIL, None, ["the gzip checksum does not fit the data"])
    assert inflate(first[:-3]).notes == ["the gzip checksum is cut off"]


def test_garbage_behind_a_gzip_stream_is_noted() -> None:
    first, second = _members()
    read = inflate(first + second + b"garbage")
    assert (read.data, read.cut) == (_HEAD + _TAIL, None)
    assert read.notes == ["7 bytes behind the gzip stream were not read"]


def test_a_damaged_second_member_keeps_the_first() -> None:
    first, second = _members()
    read = inflate(first + second[:10] + b"\xff" * 20 + second[30:])
    assert read.data.startswith(_HEAD)
    assert read.cut is not None
    assert "damaged" in read.cut


def test_a_wrong_checksum_leaves_the_trace_complete_but_not_whole(tmp_path: Path) -> None:
    packed = bytearray(gzip.compress(json.dumps(document(EVENTS)).encode()))
    packed[-8] ^= 1
    path = tmp_path / "rank0.json.gz"
    path.write_bytes(packed)
    trace = load_rank(path)
    assert (len(trace.slices), trace.complete) == (20, True)
    assert losses(trace) == ["the gzip checksum does not fit the data"]


@pytest.mark.parametrize("head", ["[", "\n[", " [\n"])
def test_an_array_that_was_never_closed_keeps_its_events(tmp_path: Path, head: str) -> None:
    text = head + ",\n".join(json.dumps(event) for event in EVENTS)
    trace = load_rank(write(tmp_path / "rank0.json", text.encode()))
    assert (len(trace.slices), trace.complete) == (20, False)


def test_two_lists_of_events_in_one_document_are_both_read(tmp_path: Path) -> None:
    lists = [json.dumps([op("traceEvents", 0, 1, traceEvents=[1]), *part]) for part in (EVENTS[:15], EVENTS[15:])]
    text = f'{{"traceEvents": {lists[0]}, "host_name": "node", "traceEvents": {lists[1]}}}'
    trace = load_rank(write(tmp_path / "rank0.json", text.encode()))
    assert (len(trace.slices), trace.coordinates.host) == (22, "node")
    assert losses(trace) == ["the file holds 2 lists of events; all were read"]


@pytest.mark.parametrize("fault", ['"op": {"a"', '"o"p"', '"op": [['])
def test_many_damaged_events_take_time_in_proportion(tmp_path: Path, fault: str) -> None:
    def load(count: int) -> float:
        lines = [json.dumps(op(f"op{n}", n, 1)) for n in range(count)]
        lines = [line.replace(f'"op{n}"', fault) if n % 2 else line for n, line in enumerate(lines)]
        path = write(tmp_path / "rank0.json", b'{"traceEvents": [\n' + ",\n".join(lines).encode() + b"\n]}")
        start = time.process_time()
        trace = load_rank(path)
        spent = time.process_time() - start
        assert len(trace.slices) >= count // 2 - 1
        assert sum(d.count for d in trace.dropped) == count // 2
        return spent

    load(100)
    # Quadratic in the number of damaged events, this takes minutes.
    assert load(16_000) < 10


def test_values_that_nest_too_deep_are_left_out_in_a_sentence(tmp_path: Path) -> None:
    text = json.dumps(document(EVENTS[:2], odd="a")).replace('"odd": "a"', '"odd": ' + "[" * 150 + "]" * 150)
    trace = load_rank(write(tmp_path / "rank0.json", text.encode()))
    assert losses(trace) == ["the value of 'odd' was left out: nested deeper than 100"]
    assert (trace.base_ns, len(trace.slices)) == (BASE_NS, 2)


def test_text_in_arguments_is_utf8_or_mended(tmp_path: Path) -> None:
    text = json.dumps(document([op("a", 1, 2, why="here")])).encode().replace(b"here", b"h\xffre")
    trace = load_rank(write(tmp_path / "rank0.json", text))
    assert trace.slices[0].arg("why") == "h\ufffdre"
    assert losses(trace) == ["bytes that are not UTF-8 were replaced by U+FFFD"]
