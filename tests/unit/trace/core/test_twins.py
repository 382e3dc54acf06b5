"""The two makes say the same of any text: rows, words, tracks and where they stopped."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsv4prof.trace.columns import OutBlock

ROOT = Path(__file__).resolve().parents[4]
SAMPLES = ROOT / "traces" / "samples"

_STRINGS = [
    b'""', b'"X"', b'"a b"', b'"\\n\\""', b'"\\u00e9"', b'"\\ud83d\\ude00"', b'"\\ud83d"', b'"\\udc00\\ud83d"',
    b'"\xc3\xa9"', b'"\xf0\x9f\x98\x80"', b'"e"', b'"g"', b'"p"', b'"%b"' % (b"long " * 9), b'"\\q"', b'"\x01"',
    b'"\xe2\x82"', b'"17"', b'"\\u0000"', b'"/\\/"', b'"\x7f"',
]  # fmt: skip
_NUMBERS = [
    b"0", b"-0", b"1", b"7", b"-1", b"12.5", b"12.345", b"12.3450", b"12.3456", b"1e3", b"1E-2", b"0.001", b"01", b"1.",
    b"9223372036854775807", b"9223372036854775808", b"-9223372036854775808", b"-9223372036854775809",
    b"4611686018427387", b"4611686018427387.001", b"4611686018427386.999", b"4611686018427388",
    b"12345678901234567890.5",
]  # fmt: skip
_OTHERS = [
    b"null", b"true", b"false", b"nul", b"NaN", b"{}", b"[]", b"[1,2]", b'{"a":1}', b'{"a":[{"b":[[1]]}]}',
    b"[" * 60 + b"]" * 60, b"[" * 101 + b"]" * 101, b'{"a":' * 100 + b"1" + b"}" * 100, b"[1,]", b"{,}",
]  # fmt: skip
_KEYS = [b"ph", b"name", b"cat", b"pid", b"tid", b"ts", b"dur", b"id", b"s", b"bp", b"args", b"x", b"", b"t\\u0073"]
_PHASES = [b'"%c"' % letter for letter in b"XXXXiIstfbneMCBE"]
_BLANKS = st.sampled_from([b"", b"", b"", b" ", b"\n  ", b"\r\t"])

_value = st.sampled_from(_STRINGS + _NUMBERS + _OTHERS)
_USUAL = {
    b"ph": st.sampled_from(_PHASES), b"name": st.sampled_from(_STRINGS), b"cat": st.sampled_from(_STRINGS),
    b"pid": st.sampled_from([b"1", b"-0", b'"1"', b"9223372036854775807"]),
    b"tid": st.sampled_from([b"7", b'"t"', b'""']),
    b"ts": st.sampled_from(_NUMBERS), b"dur": st.sampled_from(_NUMBERS),
    b"id": st.sampled_from([b"1", b'"a"', b"-5", b"null"]),
    b"s": st.sampled_from([b'"t"', b'"p"', b'"g"', b'"x"']), b"bp": st.sampled_from([b'"e"', b"null", b'"x"']),
    b"args": st.sampled_from([b"{}", b'{"a":[1,"b",{"c":null}]}', b"null", b'{"a":' * 100 + b"1" + b"}" * 100]),
}  # fmt: skip


@st.composite
def _element(draw) -> bytes:
    keys = draw(st.lists(st.sampled_from(_KEYS), max_size=9, unique=draw(st.booleans())))
    members = []
    if draw(st.booleans()):
        members = [b'"ph":"%c"' % draw(st.sampled_from(b"XisfbM")), b'"ts":12.5', b'"dur":3', b'"id":5']
    for key in keys:
        value = draw(_USUAL[key] if key in _USUAL and draw(st.integers(0, 5)) else _value)
        members.append(b'%b"%b"%b:%b%b%b' % (draw(_BLANKS), key, draw(_BLANKS), draw(_BLANKS), value, draw(_BLANKS)))
    return b"{%b}" % b",".join(members)


@st.composite
def _text(draw) -> bytes:
    elements = draw(st.lists(st.one_of(_element(), _element(), _element(), _value), min_size=1, max_size=4))
    text = bytearray(b"".join(element + draw(st.sampled_from([b",", b",\n  ", b" ,"])) for element in elements))
    if draw(st.booleans()):
        text += b"]"
    for _ in range(draw(st.sampled_from([0, 0, 0, 1, 2]))):
        at = draw(st.integers(0, len(text) - 1))
        damage = draw(st.sampled_from([b"", b'"', b"\\", b"{", b"]", b",", b"\x00", b"\xff", b"9"]))
        text[at : at + draw(st.integers(0, 2))] = damage
    return bytes(text[: draw(st.integers(0, len(text)))] if draw(st.integers(0, 3)) == 0 else text)


def _outcome(make, text: bytes, canonical: bool):
    """Every stop on the way through a text, going on behind what is odd."""
    scanner, at, seen = make.scanner(), 0, []
    while True:
        found = scanner.scan(text, at, canonical=canonical)
        seen.append((found.rows.tobytes(), *found[1:], list(scanner.words), list(scanner.tracks)))
        if found.stop != "odd":
            return seen
        at = found.end


@given(_text(), st.booleans())
@settings(max_examples=250, deadline=None)
def test_any_text(both, text: bytes, canonical: bool) -> None:
    plain, native = (_outcome(make, text, canonical) for make in both)
    assert plain == native


def _bodies() -> list[bytes]:
    texts = [gzip.decompress(path.read_bytes()) for path in sorted(SAMPLES.rglob("*.json.gz"))]
    return [text[text.index(b"[", text.index(b'"traceEvents"')) + 1 :] for text in texts if b'"traceEvents"' in text]


def test_real_files(both) -> None:
    bodies = _bodies()
    assert bodies
    for body in bodies[:4]:
        plain, native = (_outcome(make, body[:300_000], False) for make in both)
        assert plain == native
        assert plain[-1][2] in ("closed", "more")


def test_every_cut_and_damage_of_a_real_text(both) -> None:
    body = _bodies()[0][:2500]
    for cut in range(0, len(body), 3):
        plain, native = (_outcome(make, body[:cut], False) for make in both)
        assert plain == native
    pick = random.Random(4)
    for _ in range(500):
        text = bytearray(body)
        for _ in range(pick.randint(1, 3)):
            text[pick.randrange(len(text))] = pick.choice(b'"\\{}[]:,0-e. \x1f\x80\xc3\xed\xf4tn')
        plain, native = (_outcome(make, bytes(text), False) for make in both)
        assert plain == native


def test_without_vector_instructions(both, portable) -> None:
    """Every kind of byte that a string stops at, at every place in a word."""
    body = _bodies()[0][:20_000]
    texts = [body, body.replace(b"a", b"\xe2\x82\xac"), body.replace(b"e", b"\\u00e9")]
    texts += [
        b'{"ph":"i","ts":1,"name":"%b%b%b"}' % (b"x" * before, byte, b"y" * behind)
        for before in range(18)
        for behind in (0, 1, 7, 20)
        for byte in (b"", b"\\n", b"\x1f", b" ", b"!", b"#", b"[", b"]", b"\x7f", b"\x80", b"\xc3\xa9", b"\x00", b'"')
    ]
    for text in texts:
        assert _outcome(portable, text, False) == _outcome(both[0], text, False) == _outcome(both[1], text, False)


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_any_rows_are_written_alike(both, data) -> None:
    text = b",".join([
        b'{"ph":"%b","name":"n\\n%d","cat":"\xc3\xa9","ts":5,"dur":1,"id":%b,"bp":"e","args":{"a":"%d"}}'
        % (data.draw(st.sampled_from([b"X", b"i", b"s", b"t", b"f", b"b", b"n", b"e", b"M", b"C"])), i,
           data.draw(st.sampled_from([b"7", b"-3", b'"q\\"%d"' % i])), i)
        for i in range(data.draw(st.integers(0, 6)))
    ])  # fmt: skip
    scanner = both[0].scanner()
    rows = scanner.scan(text, canonical=True).rows
    whole = st.integers(-(2**63), 2**63 - 1)
    column = lambda: np.array([data.draw(whole) for _ in rows], np.int64)  # noqa: E731
    block = OutBlock(text, rows, column(), column(), np.array([i % 2 for i in range(len(rows))], np.int32), column())
    places = [b'"pid":3,"tid":7', b'"pid":12,"tid":0']
    plain, native = (make.encoder(scanner.words, places, b"3:").block(block) for make in both)
    assert plain == native


@pytest.mark.parametrize("column", ["name", "cat", "args_at", "id"])
def test_a_row_of_nothing_is_refused(make, column: str) -> None:
    scanner = make.scanner()
    text = b'{"ph":"b","id":"a","name":"n","ts":1,"args":{}}'
    rows = scanner.scan(text).rows
    zeros = np.zeros(1, np.int64)
    for value in (3, 2**31 - 1) if column == "args_at" else (3, -1, 2**31 - 1):
        damaged = rows.copy()
        damaged[column] = value if column != "args_at" else len(text) + value
        encoder = make.encoder(scanner.words, [b""], b"")
        with pytest.raises(IndexError):
            encoder.block(OutBlock(text, damaged, zeros, zeros, np.zeros(1, np.int32), zeros))
    for place in (-1, 1):
        with pytest.raises(IndexError):
            make.encoder(scanner.words, [b""], b"").block(
                OutBlock(text, rows, zeros, zeros, np.full(1, place, np.int32), zeros)
            )
