"""Two writers of one path: refused with the place, wherever the texts were cut; documents in a row are none."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsv4prof.errors import InputError
from dsv4prof.trace.load import load_rank
from dsv4prof.trace.losses import losses
from dsv4prof.trace.salvage import salvage
from dsv4prof.trace.writers import second_head, second_stream
from traces import document, op, write

_FIRST = [op(f"op{n}", n * 10, 5, **{"External id": n}) for n in range(6)]
_SECOND = [op(f"other{n}", n * 10.5, 7, **{"External id": n}) for n in range(9)]


def _text(events: list[dict[str, object]], rank: int, indent: int | None = None) -> bytes:
    top = {"deviceProperties": [{"id": 0, "name": "MI300X"}], "traceName": "/t/trace.json"}
    return json.dumps({**document(events, rank=rank, world=2), **top}, indent=indent).encode()


@pytest.mark.parametrize("indent", [None, 1])
def test_a_second_head_at_any_byte_of_the_first_is_found(indent: int | None) -> None:
    first, second = _text(_FIRST, 0, indent), _text(_SECOND, 1, indent)
    for cut in range(1, len(first) - 1):
        found = salvage(first[:cut] + second[:400] + first[cut:] + second[400:])
        assert found is not None
        assert found.foreign == cut
        assert found.events == []


@settings(max_examples=80, deadline=None)
@given(st.integers(1, len(_text(_FIRST, 0)) - 1), st.integers(300, len(_text(_SECOND, 1))), st.booleans())
def test_the_second_may_be_cut_anywhere_and_the_first_may_never_go_on(cut: int, size: int, goes_on: bool) -> None:
    first, second = _text(_FIRST, 0), _text(_SECOND, 1)
    assert second_head(first[:cut] + second[:size] + (first[cut:] if goes_on else b"")) == cut


@pytest.mark.parametrize("size", range(1, 25))
def test_a_head_that_was_cut_shows_in_the_second_list(size: int) -> None:
    first, second = _text(_FIRST, 0), _text(_SECOND, 1)
    cut = first.index(b'"op3"') + 3
    mixed = first[:cut] + second[:size] + first[cut : cut + 99] + second[size:] + first[cut + 99 :]
    assert second_head(mixed) is not None


@pytest.mark.parametrize("name", ["rank0.json", "rank0.json.gz"])
def test_the_error_has_the_place_and_the_cause(name: str, tmp_path: Path) -> None:
    first, second = _text(_FIRST, 0, 1), _text(_SECOND, 1, 1)
    cut = first.index(b"op2")
    path = write(tmp_path / name, b"\xef\xbb\xbf" + first[:cut] + second[:300] + first[cut:] + second[300:])
    line = first[:cut].count(b"\n") + 1
    with pytest.raises(InputError, match=f"begins at line {line}, byte {cut + 3}; .* two writers") as caught:
        load_rank(path)
    assert caught.value.hint


def test_the_end_of_a_longer_file_behind_a_shorter_one_is_another_writer(tmp_path: Path) -> None:
    first, second = _text(_FIRST, 0), _text(_SECOND, 1)
    for start in range(len(first), len(second) - 40):
        with pytest.raises(InputError, match=f"byte {len(first):,}; .* two writers"):
            load_rank(write(tmp_path / "rank0.json", first + second[start:]))


@pytest.mark.parametrize("rest", [b"\n", b"\0\0\0", b"}", b"Done.\n", b'log: {"saved": [1, 2]}'])
def test_other_text_behind_a_trace_is_no_writer(rest: bytes, tmp_path: Path) -> None:
    trace = load_rank(write(tmp_path / "rank0.json", _text(_FIRST, 0) + rest))
    assert [event.name for event in trace.slices] == [event["name"] for event in _FIRST]


@pytest.mark.parametrize("old", ['"op2"', '"op"2"', '"op\u0001"', '"External id": NaN'])
def test_documents_one_after_the_other_are_no_writers(old: str) -> None:
    first = _text(_FIRST, 0, 1).replace(b'"op2"', old.encode())
    for gap in (b"", b"\n", b"\n\n  "):
        found = salvage(first + gap + _text(_SECOND, 1, 1) + gap + _text(_FIRST, 0))
        assert found is not None
        assert found.foreign is None
        assert len(found.events) in (5, 6)
        assert any("second document" in note for note in found.notes)


def test_arguments_and_names_that_look_like_a_trace_are_none(tmp_path: Path) -> None:
    inner = {"schemaVersion": 1, "traceEvents": [1, 2]}
    events = [op("a", 0, 1, inner=inner), {**op("b", 1, 1), "args": inner}, op(json.dumps(inner), 2, 1), *_FIRST]
    text = json.dumps(document(events)).encode().replace(b'"op3"', b'"o"p3"')
    trace = load_rank(write(tmp_path / "rank0.json", text))
    assert (len(trace.slices), sum(d.count for d in trace.dropped)) == (8, 1)


def _packed() -> tuple[bytes, bytes]:
    many = [op(f"name {n * 7919 % 1000}", n * 10.5, 5, value=n * 31 % 97) for n in range(400)]
    return gzip.compress(_text(many, 0)), gzip.compress(_text(many[::-1], 1))


def test_gzip_streams_in_each_other_are_two_writers(tmp_path: Path) -> None:
    first, second = _packed()
    for cut in range(20, len(first) - 8, 97):
        path = tmp_path / "rank0.json.gz"
        path.write_bytes(first[:cut] + second[:2000] + first[cut:] + second[2000:])
        with pytest.raises(InputError, match=f"gzip stream begins at byte {cut:,} of the file; .* two writers"):
            load_rank(path)


def test_a_whole_gzip_stream_before_a_cut_one_is_one_writer(tmp_path: Path) -> None:
    first, second = _packed()
    assert second_stream(first + second[:500]) is None
    path = tmp_path / "rank0.json.gz"
    path.write_bytes(first + second[:500])
    assert len(load_rank(path).slices) == 400


@pytest.mark.parametrize("before", [b"", b"\xff\xfe", b"\xc3\xa9", b"\xe2\x82"])
@pytest.mark.parametrize("number", ["5", "NaN", "-Infinity", "inf"])
def test_a_fault_is_shown_where_it_lies_in_the_file(before: bytes, number: str, tmp_path: Path) -> None:
    text = json.dumps(document(_FIRST), indent=1).encode().replace(b'"op0"', b'"' + before + b'"')
    text = text.replace(b'"dur": 5', f'"dur": {number}'.encode(), 2).replace(b'"op3"', b'"o"p3"')
    trace = load_rank(write(tmp_path / "rank0.json", text))
    begin = text.rindex(b"{", 0, text.index(b'"o"p3"'))
    fault = text.index(b'"o"p3"') + 3
    lines = [text[:place].count(b"\n") + 1 for place in (begin, fault)]
    words = f"damaged event at line {lines[0]}, byte {begin}: its text is not JSON: a quote that is not escaped before "
    assert f"{words}line {lines[1]}, byte {fault}" in [d.reason for d in trace.dropped]


def test_of_many_damaged_events_the_first_is_shown(tmp_path: Path) -> None:
    text = json.dumps(document(_FIRST), indent=1).encode().replace(b'"op2"', b'[[}').replace(b'"op4"', b'"o"4"')
    (dropped,) = load_rank(write(tmp_path / "rank0.json", text)).dropped
    assert dropped.count == 2
    begin = text.rindex(b"{", 0, text.index(b"[[}"))
    line = text[:begin].count(b"\n") + 1
    assert dropped.reason.startswith(f"damaged events, the first at line {line}, byte {begin}: ")


def test_the_first_control_character_is_shown(tmp_path: Path) -> None:
    text = json.dumps(document(_FIRST), indent=1).encode().replace(b'"op2"', b'"o\x01p\n2"').replace(b"op4", b"o\t4")
    place = text.index(b"\x01")
    (loss,) = losses(load_rank(write(tmp_path / "rank0.json", text)))
    assert loss.endswith(f"the first at line {text[:place].count(10) + 1}, byte {place}")
