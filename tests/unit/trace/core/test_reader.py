"""A regular element says what the general reader makes of it: same facts, to the nanosecond and the byte."""

from __future__ import annotations

import gzip
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsv4prof.model.event import Track
from dsv4prof.trace.columns import BINDS_ENCLOSING, ID_IS_WORD
from dsv4prof.trace.wire import WireEvent, nanoseconds, too_deep

SAMPLES = Path(__file__).resolve().parents[4] / "traces" / "samples"
_EVENTS = msgspec.json.Decoder(WireEvent)


def _general(element: bytes) -> tuple[object, ...] | None:
    """The facts of an element as the typed, strict read has them; None when it cannot be read."""
    try:
        event = _EVENTS.decode(element)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    args = None if bytes(event.args) in (b"", b"null") else bytes(event.args)
    if args is not None and (not args.startswith(b"{") or too_deep(args)):
        return None
    head = event.name, event.cat, Track(event.pid, event.tid)
    if event.ph == "M":
        return "M", *head, args
    at_ns = nanoseconds(event.ts)
    if at_ns is None or at_ns < 0:
        return None
    if event.ph == "X":
        dur_ns = nanoseconds(event.dur)
        return None if dur_ns is None or dur_ns < 0 else ("X", *head, at_ns, dur_ns, args)
    if event.ph in ("i", "I"):
        return "i", *head, at_ns, event.s, args
    if event.id is None:
        return None
    return event.ph, *head, at_ns, event.id, event.bp if event.ph in "stf" else args


def _scanned(make, element: bytes) -> tuple[object, ...] | None:
    scanner = make.scanner()
    found = scanner.scan(element)
    if not len(found.rows):
        assert found.stop in ("odd", "broken"), found.stop
        return None
    (row,) = found.rows
    args = element[row["args_at"] : row["args_at"] + row["args_len"]] or None
    name, cat, track = scanner.words[row["name"]], scanner.words[row["cat"]], scanner.tracks[row["track"]]
    ph = chr(row["ph"])
    if ph == "M":
        return "M", name, cat, track, args
    if ph == "X":
        return ph, name, cat, track, int(row["ts"]), int(row["dur"]), args
    if ph == "i":
        return ph, name, cat, track, int(row["ts"]), chr(row["scope"]), args
    own = scanner.words[row["id"]] if row["flags"] & ID_IS_WORD else int(row["id"])
    last = args if ph in "bne" else ("e" if row["flags"] & BINDS_ENCLOSING else None)
    return ph, name, cat, track, int(row["ts"]), own, last


_STRINGS = st.one_of(st.text(max_size=8), st.sampled_from(["e", "t", "p", "g"])).map(msgspec.json.encode)
_INTEGERS = st.one_of(st.integers(-9, 9), st.integers(-(2**70), 2**70)).map(lambda n: b"%d" % n)
_TIMES = st.one_of(
    st.decimals(min_value=0, max_value=2**54, places=3).map(lambda d: f"{d:f}".encode()),
    st.decimals(allow_nan=False, allow_infinity=False).map(lambda d: str(d).lower().encode()),
    st.sampled_from([b"0", b"null", b"1.5000", b"-0", b"1.0004", b"4611686018427387.0"]),
    _STRINGS,
)
_FIELDS = {
    b"ph": st.sampled_from([b'"%c"' % letter for letter in b"XiIstfbneMBEq"]),
    b"name": _STRINGS,
    b"cat": _STRINGS,
    b"pid": st.one_of(_INTEGERS, _STRINGS, st.sampled_from([b"-0", b"1.0", b"null"])),
    b"tid": st.one_of(_INTEGERS, _STRINGS),
    b"ts": _TIMES,
    b"dur": _TIMES,
    b"id": st.one_of(_INTEGERS, _STRINGS, st.just(b"null")),
    b"s": _STRINGS,
    b"bp": st.sampled_from([b'"e"', b"null", b'"x"']),
    b"args": st.sampled_from([
        b"{}", b"null", b'{ "a" : [1e3, "\xc3\xa9"] }', b"[]", b'{"a":' * 101 + b"1" + b"}" * 101,
    ]),
    b"other": st.sampled_from([b"1", b'[{"ts":2}]', b'{"name":3}']),
}  # fmt: skip


@st.composite
def _element(draw) -> bytes:
    keys = [b"ph", b"ts", *draw(st.lists(st.sampled_from(sorted(_FIELDS)), max_size=9))]
    return b"{%b}" % b",".join(b'"%b":%b' % (key, draw(_FIELDS[key])) for key in draw(st.permutations(keys)))


@given(_element())
@settings(max_examples=200, deadline=None)
def test_a_regular_element_says_the_same(make, element: bytes) -> None:
    scanned = _scanned(make, element)
    if scanned is not None:
        assert scanned == _general(element)


@pytest.mark.parametrize("phase", ["X", "i", "s", "b"])
def test_the_usual_element_is_regular(make, phase: str) -> None:
    element = b'{"ph":"%b","name":"a","cat":"b","pid":1,"tid":2,"ts":3.004,"dur":5,"id":6,"bp":"e","args":{"a":1}}'
    scanned = _scanned(make, element % phase.encode())
    assert scanned is not None
    assert scanned == _general(element % phase.encode())


def test_real_events_are_regular_and_say_the_same(make) -> None:
    path = sorted(SAMPLES.rglob("*.json.gz"))[0]
    elements = msgspec.json.decode(gzip.decompress(path.read_bytes()), type=dict[str, msgspec.Raw])["traceEvents"]
    for element in msgspec.json.decode(elements, type=list[msgspec.Raw])[::7]:
        assert _scanned(make, bytes(element)) == _general(bytes(element)) is not None
