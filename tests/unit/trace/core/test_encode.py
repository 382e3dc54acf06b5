"""The canonical lines of a merged trace, byte for byte."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from dsv4prof.trace.columns import OutBlock

PLACES = [b'"pid":3,"tid":7', b'"pid":4,"tid":0']


def _lines(make, text: bytes, ts, dur=None, ids=None, place=None, rows=None) -> bytes:
    scanner = make.scanner()
    found = scanner.scan(text, canonical=True).rows
    rows = found if rows is None else found[rows]
    zeros = [0] * len(rows)
    block = OutBlock(
        text,
        rows,
        np.array(ts, np.int64),
        np.array(dur or zeros, np.int64),
        np.array(place or zeros, np.int32),
        np.array(ids or zeros, np.int64),
    )
    return make.encoder(scanner.words, PLACES, b"3:").block(block)


@pytest.mark.parametrize(
    ("element", "line"),
    [
        (
            b'{"ph":"X","name":"k","cat":"kernel","ts":1,"dur":9,"args":{"a": [1,\n2]}}',
            b'{"ph":"X","cat":"kernel","name":"k","pid":3,"tid":7,"ts":1.005,"dur":2,"args":{"a": [1,\n2]}}',
        ),
        (b'{"ph":"X","ts":1,"dur":9}', b'{"ph":"X","cat":"","name":"","pid":3,"tid":7,"ts":1.005,"dur":2}'),
        (
            b'{"ph":"i","name":"[memory]","ts":1,"s":"p","args":{}}',
            b'{"ph":"i","s":"p","cat":"","name":"[memory]","pid":3,"tid":7,"ts":1.005,"args":{}}',
        ),
        (
            b'{"ph":"C","name":"m","ts":1,"args":{"a":1}}',
            b'{"ph":"C","name":"m","pid":3,"tid":7,"ts":1.005,"args":{"a":1}}',
        ),
        (
            b'{"ph":"b","id":-5,"name":"n","cat":"c","ts":1,"args":{"a":1}}',
            b'{"ph":"b","id":"3:-5","cat":"c","name":"n","pid":3,"tid":7,"ts":1.005,"args":{"a":1}}',
        ),
        (
            b'{"ph":"e","id":"0x\\u00e9\\"","ts":1,"bp":"e"}',
            b'{"ph":"e","id":"3:0x\xc3\xa9\\"","cat":"","name":"","pid":3,"tid":7,"ts":1.005}',
        ),
        (
            b'{"ph":"f","id":4,"name":"ac2g","cat":"ac2g","ts":1,"bp":"e","args":{"a":1}}',
            b'{"ph":"f","id":77,"cat":"ac2g","name":"ac2g","pid":3,"tid":7,"ts":1.005,"bp":"e"}',
        ),
        (b'{"ph":"s","id":"q","ts":1}', b'{"ph":"s","id":77,"cat":"","name":"","pid":3,"tid":7,"ts":1.005}'),
        (b'{"ph":"M","name":"process_name","args":{"name":"x"}}', b""),
    ],
)  # fmt: skip
def test_a_line(make, element: bytes, line: bytes) -> None:
    assert _lines(make, element, [1005], [2000], [77]) == line


@pytest.mark.parametrize(
    ("ns", "us"),
    [(0, b"0"), (1, b"0.001"), (10, b"0.010"), (1000, b"1"), (1500, b"1.500"), (999_999, b"999.999"), (-1, b"-0.001"),
     (-2500, b"-2.500"), (123_456_789_012, b"123456789.012"), (2**62, b"4611686018427387.904"),
     (-(2**63), b"-9223372036854775.808")],
)  # fmt: skip
def test_times_are_exact(make, ns: int, us: bytes) -> None:
    line = _lines(make, b'{"ph":"X","ts":1,"dur":1}', [ns], [ns])
    assert line.endswith(b'"ts":%b,"dur":%b}' % (us, us))


def test_words_are_encoded_as_elsewhere(make) -> None:
    words = ["", 'a"b\\c', "\x00\x1f\n\t\x7f", "é€😀", "</script>"]
    text = b",".join(b'{"ph":"i","ts":1,"name":%b}' % msgspec.json.encode(word) for word in words)
    lines = _lines(make, text, [0] * len(words)).split(b",\n")
    for line, word in zip(lines, words, strict=True):
        assert b'"name":%b,' % msgspec.json.encode(word) in line
        assert msgspec.json.decode(line)["name"] == word


def test_any_rows_in_any_order(make) -> None:
    text = b",".join(b'{"ph":"%c","name":"%d","id":1,"ts":1,"dur":1}' % (ph, i) for i, ph in enumerate(b"XMsiMX"))
    lines = _lines(make, text, [1000, 2000, 3000, 4000], [0] * 4, [9] * 4, [1, 0, 1, 0], [5, 1, 2, 0]).split(b",\n")
    events = [msgspec.json.decode(line) for line in lines]
    assert [(e["name"], e["pid"], e["ts"]) for e in events] == [("5", 4, 1), ("2", 4, 3), ("0", 3, 4)]
    assert _lines(make, text, [], rows=[]) == b""
    assert _lines(make, text, [0, 0], rows=[1, 4]) == b""


def test_words_and_places_may_grow_between_blocks(make) -> None:
    scanner = make.scanner()
    places: list[bytes] = []
    encoder = make.encoder(scanner.words, places, b"0:")
    for part in range(4):
        text = b",".join(b'{"ph":"i","name":"n%d","ts":1}' % (part * 5000 + i) for i in range(5000))
        rows = scanner.scan(text).rows
        places += [b'"pid":1,"tid":%d' % (part * 300 + i) for i in range(300)]
        zeros = np.zeros(len(rows), np.int64)
        out = encoder.block(OutBlock(text, rows, zeros, zeros, np.full(len(rows), len(places) - 1, np.int32), zeros))
        line = b'{"ph":"i","s":"t","cat":"","name":"n%d","pid":1,"tid":%d,"ts":0}'
        assert out.split(b",\n")[-1] == line % (part * 5000 + 4999, part * 300 + 299)


def test_columns_of_other_lengths_are_refused(make) -> None:
    with pytest.raises(ValueError, match=r"zip|length"):
        _lines(make, b'{"ph":"X","ts":1,"dur":1}', [1, 2], [1])
