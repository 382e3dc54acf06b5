"""What is a regular element, where a scan stops, and what it says of the elements before."""

from __future__ import annotations

import pytest

from dsv4prof.errors import InputError
from dsv4prof.model.event import Track
from dsv4prof.trace.columns import BINDS_ENCLOSING, EVENT, HAS_ID, ID_IS_WORD
from dsv4prof.trace.core import plain

X = b'{"ph":"X","name":"k","cat":"kernel","pid":0,"tid":7,"ts":10.5,"dur":2}'


def _scan(make, text: bytes, **how):
    scanner = make.scanner()
    return scanner, scanner.scan(text, **how)


def _fields(row) -> dict[str, int]:
    return dict(zip(EVENT.names, row.tolist(), strict=True))


def test_a_slice_in_columns(make) -> None:
    text = b' {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 5, "tid": "main", "ts": 1699.005, "dur": 3.4, '
    text += b'"args": {"a": [1, {"b": "}"}]}} ]'
    scanner, found = _scan(make, text)
    assert (found.stop, found.consumed) == ("closed", len(text) - 1)
    row = _fields(found.rows[0])
    assert (row["ts"], row["dur"], chr(row["ph"]), row["flags"]) == (1_699_005, 3_400, "X", 0)
    assert (scanner.words, scanner.tracks) == (["aten::add", "cpu_op"], [Track(5, "main")])
    assert (row["name"], row["cat"], row["track"]) == (0, 1, 0)
    assert text[row["args_at"] : row["args_at"] + row["args_len"]] == b'{"a": [1, {"b": "}"}]}'


def test_words_and_tracks_are_shared_and_in_order_of_first_use(make) -> None:
    text = b",".join([
        b'{"ph":"i","name":"a","cat":"b","ts":1}',
        b'{"ph":"s","id":"q","name":"b","cat":"a","ts":1,"pid":0,"tid":-0,"bp":"e"}',
        b'{"ph":"i","name":"\\u0061","ts":1,"pid":"0","tid":0,"s":"g"}',
        b'{"ph":"f","id":-9223372036854775808,"ts":1}',
    ])  # fmt: skip
    scanner, found = _scan(make, text)
    assert scanner.words == ["a", "b", "q", "a", ""]
    assert scanner.tracks == [Track(0, 0), Track("0", 0)]
    first, flow, second, last = map(_fields, found.rows)
    assert (first["name"], first["cat"], chr(first["scope"])) == (0, 1, "t")
    assert (flow["id"], flow["flags"]) == (2, HAS_ID | ID_IS_WORD | BINDS_ENCLOSING)
    assert (second["name"], second["cat"], second["track"], chr(second["scope"])) == (3, 4, 1, "g")
    assert (last["id"], last["flags"], last["track"]) == (-(2**63), HAS_ID, 0)


@pytest.mark.parametrize(
    ("us", "ns"),
    [
        ("0", 0),
        ("123", 123_000),
        ("123.0", 123_000),
        ("123.45", 123_450),
        ("123.456000", 123_456),
        ("0.001", 1),
        ("4611686018427387", 4611686018427387000),
        ("4611686018427387.000", 4611686018427387000),
    ],
)
def test_times_are_exact(make, us: str, ns: int) -> None:
    _, found = _scan(make, b'{"ph":"i","ts":%b}' % us.encode())
    assert found.rows["ts"].tolist() == [ns]


@pytest.mark.parametrize(
    "element",
    [
        b'{"ph":"M"}',
        b'{"ph":"M","name":"process_name","ts":1e300,"args":null}',
        b'{ "ts" : 1 , "ph" : "I" }',
        b'{"ph":"n","ts":1,"id":1,"dur":null,"bp":null,"s":"zz"}',
        b'{"ph":"X","ts":0,"dur":0.001,"id":99999999999999999999}',
        b'{"ph":"X","ts":1,"dur":0,"x":[[[[[[]]]]]],"args":{"":{}}}',
        b'{"ph":"X","ts":1,"dur":0,"name":"\\ud83d\\ude00 \\"\xf0\x9f\x98\x80\x7f"}',
        b'{"ph":"X","ts":1,"dur":0,"args":{"a":%b}}' % (b"[" * 99 + b"]" * 99),
        b'{"ph":"X","ts":3,"ts":1,"dur":0}',
    ],
)
def test_regular(make, element: bytes) -> None:
    scanner, found = _scan(make, element)
    assert (len(found.rows), found.stop, found.consumed) == (1, "more", len(element))
    assert len(scanner.tracks) == 1


ODD = [
    b"{}", b"[]", b"null", b'"a"', b"[{}]",
    b'{"ph":"B","ts":1}', b'{"ph":"C","ts":1}', b'{"ph":"XX","ts":1,"dur":1}', b'{"ph":"","ts":1}', b'{"ph":1,"ts":1}',
    b'{"ph":"\\u0058","ts":1,"dur":1}', b'{"ph":"i","t\\u0073":1,"ts":1}',
    b'{"ph":"i"}', b'{"ph":"i","ts":null}', b'{"ph":"i","ts":"1"}', b'{"ph":"i","ts":-1}', b'{"ph":"i","ts":-0}',
    b'{"ph":"i","ts":1e3}', b'{"ph":"i","ts":1.0001}', b'{"ph":"i","ts":4611686018427387.001}',
    b'{"ph":"i","ts":4611686018427388}', b'{"ph":"i","ts":%b}' % (b"9" * 5000),
    b'{"ph":"X","ts":1}', b'{"ph":"X","ts":1,"dur":null}', b'{"ph":"X","ts":1,"dur":-1}', b'{"ph":"X","ts":0,"dur":0}',
    b'{"ph":"i","ts":1,"dur":"1"}',
    b'{"ph":"i","ts":1,"s":"z"}', b'{"ph":"i","ts":1,"s":""}', b'{"ph":"i","ts":1,"s":null}',
    b'{"ph":"s","ts":1}', b'{"ph":"b","ts":1,"id":null}', b'{"ph":"s","ts":1,"id":1.0}', b'{"ph":"s","ts":1,"id":[]}',
    b'{"ph":"s","ts":1,"id":9223372036854775808}', b'{"ph":"s","ts":1,"id":1,"bp":"x"}',
    b'{"ph":"i","ts":1,"pid":1.0}', b'{"ph":"i","ts":1,"pid":null}', b'{"ph":"i","ts":1,"tid":18446744073709551615}',
    b'{"ph":"i","ts":1,"name":null}', b'{"ph":"i","ts":1,"cat":[]}', b'{"ph":"i","ts":1,"args":[]}',
    b'{"ph":"i","ts":1,"args":1}', b'{"ph":"i","ts":1,"name":1,"name":"a"}',
    b'{"ph":"i","ts":1,"name":"\\ud800"}', b'{"ph":"i","ts":1,"args":{"\\udc00":1}}',
    b'{"ph":"i","ts":1,"x":"\\ud800\\u0041"}', b'{"\\udfff":1,"ph":"i","ts":1}',
    b'{"ph":"X","ts":1,"dur":0,"args":{"a":%b}}' % (b"[" * 100 + b"]" * 100),
    b'{"ph":"X","ts":1,"dur":0,"x":%b}' % (b"[" * 5000 + b"]" * 5000),
]  # fmt: skip


@pytest.mark.parametrize("element", ODD, ids=lambda text: text[:40].decode())
def test_odd(make, element: bytes) -> None:
    scanner, found = _scan(make, X + b",\n" + element + b",")
    assert (found.stop, len(found.rows)) == ("odd", 1)
    assert (found.consumed, found.end) == (len(X) + 2, len(X) + 2 + len(element))
    assert (scanner.words, scanner.tracks) == (["k", "kernel"], [Track(0, 7)])


@pytest.mark.parametrize(
    "element",
    [
        b"}", b":", b"x", b"nul,", b"True", b"{,}", b'{"a"}', b'{"a":}', b'{"a":1,}', b'{"a":1 "b":2}', b"{1:2}",
        b"[1,]", b"[,1]", b"[1 2]", b'{"a":[1}', b'{"a":{"b":1]}', b'{"a":01}', b'{"a":1.}', b'{"a":.5}', b'{"a":+1}',
        b'{"a":-}', b'{"a":1e}', b'{"a":NaN}', b'{"a":Infinity}', b'{"a":-Infinity}', b'{"a":0x1}', b"1.5.2", b"1-2",
        b'{"a":"\n"}', b'{"a":"\x00"}', b'{"a":"\\x"}', b'{"a":"\\u12g4"}', b"{'a':1}", b'{"a":tru}', b'{"a":nulll}',
        b'{"a":"\xff"}', b'{"a":"\xc0\xaf"}', b'{"a":"\xe0\x80\x80"}', b'{"a":"\xed\xa0\x80"}',
        b'{"a":"\xf4\x90\x80\x80"}', b'{"a":"\xe2\x28"}', b'{"a":"\x80"}', b"\xc3\xa9",
        b'{"a":1/**/}', b"\x0b{}", b"\xef\xbb\xbf{}",
    ],
    ids=repr,
)  # fmt: skip
def test_broken(make, element: bytes) -> None:
    _, found = _scan(make, X + b" ,\t" + element + b" ")
    assert (found.stop, len(found.rows), found.consumed) == ("broken", 1, len(X) + 3)


def test_a_text_may_end_anywhere(make) -> None:
    rich = (
        b'{"ph":"s","id":"\\u00e9\\ud83d\\ude00","ts":12.250,"cat":"\xc3\xa9\xe2\x82\xac","args":'
        b'{"a":[-1.5e+3,true,false,null,{}],"b":"\\n"},"bp":"e"}'
    )
    for cut in range(1, len(rich)):
        _, found = _scan(make, X + b"," + rich[:cut])
        assert (found.stop, len(found.rows), found.consumed) == ("more", 1, len(X) + 1), rich[:cut]
    _, found = _scan(make, X + b"," + rich)
    assert (found.stop, len(found.rows)) == ("more", 2)


@pytest.mark.parametrize(
    "scalar", [b"1", b"-", b"1.", b"1e", b"1e-", b"tr", b"fals", b'"a', b'"\\', b'"\\u00', b'"\xe2']
)
def test_what_may_go_on_is_no_element_yet(make, scalar: bytes) -> None:
    _, found = _scan(make, scalar)
    assert (found.stop, found.consumed) == ("more", 0)


def test_pieces_give_what_the_whole_gives(make) -> None:
    text = b",\n".join([X, X.replace(b"kernel", b"\xe2\x82\xac"), b'{"ph":"i","ts":1.5,"args":{"a":"b"}}'] * 3) + b"]"
    whole = make.scanner()
    rows = whole.scan(text).rows
    for size in (1, 7, 50):
        scanner = make.scanner()
        held, seen = b"", []
        for at in range(0, len(text), size):
            held += text[at : at + size]
            found = scanner.scan(held)
            seen += [row[:6] for row in found.rows.tolist()]
            held = held[found.consumed :]
        assert found.stop == "closed"
        assert (seen, scanner.words, scanner.tracks) == (
            [row[:6] for row in rows.tolist()], whole.words, whole.tracks,
        )  # fmt: skip


def test_counters_are_regular_in_a_canonical_file_only(make) -> None:
    text = b'{"ph":"C","name":"m","ts":1,"args":{"a":1}}'
    assert _scan(make, text)[1].stop == "odd"
    _, found = _scan(make, text, canonical=True)
    assert (len(found.rows), found.rows["ph"][0]) == (1, ord("C"))


def test_a_scan_begins_where_it_is_told(make) -> None:
    text = b"garbage" + X + b"]"
    scanner, found = _scan(make, text, start=7)
    assert (len(found.rows), found.stop) == (1, "closed")
    assert _scan(make, text, start=len(text))[1].stop == "more"
    for start in (-1, len(text) + 1):
        with pytest.raises(ValueError, match="outside the text"):
            scanner.scan(text, start)


def test_a_text_beyond_a_row_s_places_is_refused(make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plain, "MAX_TEXT", 10)
    with pytest.raises(InputError, match="too long to scan"):
        make.scanner().scan(X)


def test_the_tables_grow_with_the_file(make) -> None:
    scanner = make.scanner()
    for part in range(3):
        text = b",".join(
            b'{"ph":"i","ts":1,"name":"%d","pid":%d,"tid":"t%d"}' % ((part * 2000 + i,) * 3) for i in range(2000)
        )
        assert len(scanner.scan(text).rows) == 2000
    assert [scanner.words[i] for i in (0, 2, 6000)] == ["0", "1", "5999"]
    assert scanner.tracks[5999] == Track(5999, "t5999")
    again = scanner.scan(text)
    assert (again.rows["name"][-1], again.rows["track"][-1]) == (6000, 5999)


def test_rows_outlive_their_scanner(make) -> None:
    scanner = make.scanner()
    rows = scanner.scan(X).rows
    before = rows.tobytes()
    scanner.scan(X.replace(b"10.5", b"99") * 1000)
    del scanner
    assert rows.tobytes() == before
    rows["ts"] += 1
