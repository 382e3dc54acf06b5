"""One rank's file: exact times, identity, and nothing dropped without a count."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv4prof.errors import InputError
from dsv4prof.trace.check import check_file
from dsv4prof.trace.load import load_rank
from dsv4prof.trace.losses import losses
from dsv4prof.trace.merge import merge
from dsv4prof.trace.wire import decode_events, nanoseconds
from traces import BASE_NS, document, flow, kernel, meta, op, write, write_chrome_json, x


def _reasons(path: Path) -> dict[str, int]:
    return {dropped.reason: dropped.count for dropped in load_rank(path).dropped}


@given(st.integers(0, 2**61))
def test_decimal_text_gives_exact_nanoseconds(ns: int) -> None:
    text = f"{ns // 1000}.{ns % 1000:03d}"
    for form in (text, f'"{text}"'):
        events, odd = decode_events(f'[{{"ph":"X","ts":{form}}}]'.encode())
        assert odd == 0
        assert nanoseconds(events[0].ts) == ns


def test_epoch_scale_time_keeps_its_last_digit(tmp_path: Path) -> None:
    text = (
        '{"traceEvents":[{"ph":"X","name":"a","cat":"cpu_op","pid":1,"tid":1,"ts":1790857026123456.789,"dur":0.001}]}'
    )
    trace = load_rank(write(tmp_path / "rank0.json", text.encode()))
    assert trace.slices[0].start_ns == 1_790_857_026_123_456_789
    assert trace.slices[0].dur_ns == 1


def test_base_time_is_applied_wherever_it_stands(tmp_path: Path) -> None:
    events = [op("a", 1.5, 2)]
    early = write(tmp_path / "early.json", {"baseTimeNanoseconds": BASE_NS, "traceEvents": events})
    late = write(tmp_path / "late.json", {"traceEvents": events, "baseTimeNanoseconds": BASE_NS})
    assert load_rank(early).slices[0].start_ns == load_rank(late).slices[0].start_ns == BASE_NS + 1500


def test_gzip_plain_and_bare_array_read_the_same(tmp_path: Path) -> None:
    events = [op("a", 1, 2)]
    files = [
        write(tmp_path / "a.json.gz", {"traceEvents": events}),
        write(tmp_path / "a.json", {"traceEvents": events}),
        write(tmp_path / "b.json", events),
    ]
    assert len({load_rank(file).slices[0].start_ns for file in files}) == 1


@pytest.mark.parametrize(
    ("name", "info", "rank", "world"),
    [
        ("rank3.json", None, 3, None),
        ("x.rank2of8.pt.trace.json", None, 2, 8),
        ("run_rank-1.json", {"rank": 0, "world_size": 1}, 1, None),
        ("id-TP-2.trace.json", {"rank": 0, "world_size": 1}, 2, None),
        ("id-TP-1-DP-0-EP-1-DECODE.trace.json", {"rank": 1, "world_size": 2}, 1, 2),
        ("dp0_pp0_tp1_dcp0_ep0_rank5.17.pt.trace.json", {"rank": 0, "world_size": 1}, 5, None),
        ("host_77.123.pt.trace.json", {"rank": 4, "world_size": 8}, 4, 8),
        ("host_77.123.pt.trace.json", '{"rank": 4, "world_size": 8}', 4, 8),
        ("frank9.json", {"rank": 1, "world_size": 2}, 1, 2),
        ("nothing.json", None, 0, None),
    ],
)
def test_the_name_decides_the_rank_before_the_content(
    tmp_path: Path, name: str, info: object, rank: int, world: int | None
) -> None:
    content = {"traceEvents": [op("a", 1, 2)], **({"distributedInfo": info} if info else {})}
    found = load_rank(write(tmp_path / name, content)).coordinates
    assert (found.rank, found.world_size) == (rank, world)


def test_group_coordinates_of_sglang_names(tmp_path: Path) -> None:
    found = load_rank(write(tmp_path / "id-TP-3-DP-1-PP-0-EP-2.trace.json", [op("a", 1, 2)])).coordinates
    assert (found.tp, found.dp, found.pp, found.ep) == (3, 1, 0, 2)


def test_a_contradiction_between_name_and_content_is_noted(tmp_path: Path) -> None:
    trace = load_rank(write(tmp_path / "id-TP-2.json", document([op("a", 1, 2)], rank=0, world=4)))
    assert trace.coordinates.rank == 2
    assert trace.notes == ["the file's name says rank 2, its content rank 0; the name was believed"]


def test_host_and_device_names(tmp_path: Path) -> None:
    content = document([op("a", 1, 2)], host_name="node7", deviceProperties=[{"name": "MI300X"}, {"name": "MI300X"}])
    found = load_rank(write(tmp_path / "rank0.json", content)).coordinates
    assert (found.host, found.device) == ("node7", "MI300X")


def test_every_unusable_event_is_counted_with_its_reason(tmp_path: Path) -> None:
    events = [
        op("kept", 1, 2),
        {"ph": "X", "name": "a", "cat": "cpu_op", "pid": 1, "tid": 1, "ts": 5},
        x("b", "cpu_op", -3, 1),
        x("c", "cpu_op", 3, -1),
        {"ph": "X", "name": "d", "pid": 1, "tid": 1, "dur": 2},
        kernel("e", 0, 0),
        {"ph": "s", "name": "f", "cat": "ac2g", "pid": 1, "tid": 1, "ts": 5},
        {"ph": "Q", "name": "g", "pid": 1, "tid": 1, "ts": 5},
        x("h", "cpu_op", "nan", 1),
    ]
    path = write(tmp_path / "rank0.json", document(events))
    assert [s.name for s in load_rank(path).slices] == ["kept"]
    assert _reasons(path) == {
        "slice without a valid duration": 1,
        "negative time": 1,
        "slice with a negative duration": 1,
        "no valid time": 2,
        "GPU record without a time (time 0)": 1,
        "flow without an id": 1,
        "phase 'Q' is not one that torch writes": 1,
    }


def test_a_kernel_at_time_zero_with_a_duration_is_kept(tmp_path: Path) -> None:
    assert len(load_rank(write(tmp_path / "rank0.json", document([kernel("k", 0, 100)]))).slices) == 1


def test_events_of_an_odd_shape_do_not_lose_the_others(tmp_path: Path) -> None:
    path = write(tmp_path / "rank0.json", document([op("a", 1, 2), {"ph": "X", "name": ["no"]}, op("b", 3, 2)]))
    assert [s.name for s in load_rank(path).slices] == ["a", "b"]
    assert _reasons(path) == {"malformed event": 1}


def test_points_counters_and_asyncs_are_read(tmp_path: Path) -> None:
    events = [
        {"ph": "i", "s": "g", "name": "mark", "pid": "Traces", "tid": "t", "ts": 1},
        {"ph": "C", "name": "mem", "pid": 1, "tid": 0, "ts": 2, "args": {"bytes": 5}},
        {"ph": "b", "id": "0x1", "cat": "req", "name": "r", "pid": 1, "tid": 1, "ts": 3},
        {"ph": "e", "id": "0x1", "cat": "req", "name": "r", "pid": 1, "tid": 1, "ts": 4},
        flow("s", 1, 1),
    ]
    trace = load_rank(write(tmp_path / "rank0.json", document(events)))
    assert (len(trace.instants), len(trace.counters), len(trace.asyncs), len(trace.flows)) == (1, 1, 2, 1)
    assert trace.instants[0].scope == "g"


def test_repeated_metadata_is_folded_and_names_only_tracks_with_events(tmp_path: Path) -> None:
    events = [meta("thread_name", 1, 5, name="worker")] * 50 + [
        meta("process_name", 9, name="ghost"),
        op("a", 1, 2, pid=1, tid=5),
    ]
    tracks = load_rank(write(tmp_path / "rank0.json", document(events))).tracks
    assert [(track.track.pid, track.thread_name) for track in tracks] == [(1, "worker")]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (b"", "is empty"),
        (b"  \n", "is empty"),
        (b'{"rocprofiler-sdk-tool": []}', "it has no traceEvents"),
        (b'{"traceEvents": []}', "no event in it could be read"),
        (b"hello", "not a trace"),
        (b'"text"', "not a trace"),
        (b'{"traceEvents": 5}', "not a trace"),
        (b"\x1f\x8b\x08\x00", "nothing could be decompressed"),
    ],
)
def test_what_is_no_trace_is_refused_in_one_sentence(tmp_path: Path, content: bytes, sentence: str) -> None:
    path = tmp_path / "odd.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=sentence) as caught:
        load_rank(path)
    assert caught.value.hint
    assert "\n" not in caught.value.message


def test_another_format_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        load_rank(write(tmp_path / "r.json", json.dumps({"rocprofiler-sdk-tool": [1]}).encode()))
    assert "rocprofv3" in (caught.value.hint or "")


def test_a_missing_file_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        load_rank(tmp_path / "absent.json")


def _edge(ph: str, name: str, ts: float, tid: int = 1) -> dict[str, object]:
    return {"ph": ph, "name": name, "cat": "cpu_op", "pid": 1, "tid": tid, "ts": ts}


def test_begins_and_ends_make_slices(tmp_path: Path) -> None:
    events = [_edge("B", "outer", 1), _edge("B", "inner", 2), _edge("B", "other", 2.5, 2)]
    events += [{"ph": "E", "pid": 1, "tid": 1, "ts": 3}, _edge("E", "outer", 5), _edge("E", "other", 6, 2)]
    trace = load_rank(write(tmp_path / "rank0.json", events))
    assert {(s.name, s.start_ns, s.dur_ns) for s in trace.slices} == {
        ("outer", 1000, 4000),
        ("inner", 2000, 1000),
        ("other", 2500, 3500),
    }
    assert losses(trace) == []


def test_a_begin_without_an_end_is_a_loss(tmp_path: Path) -> None:
    trace = load_rank(write(tmp_path / "rank0.json", [op("a", 1, 2), _edge("B", "b", 1), _edge("E", "c", 1, 2)]))
    assert losses(trace) == [
        "1 left out: begin of a slice without its end",
        "1 left out: end of a slice without its begin",
    ]


@pytest.mark.parametrize(
    "event",
    [
        {"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": 1},
        {"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": -1, "dur": 2},
        {"ph": "X", "name": "a", "pid": 1, "tid": 1, "ts": "1e9999999", "dur": 2},
        {"ph": "X", "name": ["a"], "pid": 1, "tid": 1, "ts": 1, "dur": 2},
        {"ph": "?", "name": "a", "pid": 1, "tid": 1, "ts": 1},
    ],
)
def test_an_event_that_was_left_out_is_a_loss(tmp_path: Path, event: dict[str, object]) -> None:
    assert len(losses(load_rank(write(tmp_path / "rank0.json", [op("a", 1, 2), event])))) == 1


def test_an_arrow_end_of_a_call_that_launched_nothing_is_no_loss(tmp_path: Path) -> None:
    trace = merge([load_rank(write(tmp_path / "rank0.json", [op("a", 1, 2), flow("f", 5, 1)]))])
    assert len(trace.ranks[0].trace.dropped) == 1
    assert losses(trace.ranks[0].trace) == []


@pytest.mark.parametrize("base", [10**20, -5, "soon", 1.5])
def test_a_base_time_that_no_clock_shows_is_ignored_and_noted(tmp_path: Path, base: object) -> None:
    trace = load_rank(write(tmp_path / "rank0.json", {"baseTimeNanoseconds": base, "traceEvents": [op("a", 1, 2)]}))
    assert (trace.base_ns, trace.slices[0].start_ns) == (0, 1000)
    assert losses(trace) == ["its base time is none that a clock shows; it was ignored"]


@pytest.mark.parametrize(
    ("name", "info", "rank", "world", "notes"),
    [
        ("a.json", {"rank": 0, "world_size": 300_000_000}, 0, None, ["its world size 300000000 cannot be"]),
        ("a.json", {"rank": 3, "world_size": 2}, 3, None, ["its world size 2 cannot be for rank 3"]),
        ("a.json", {"rank": 10**20, "world_size": 4}, 0, 4, ["its rank 100000000000000000000 cannot be"]),
        ("rank20261129210000.json", {"rank": 1, "world_size": 4}, 1, 4, ["its rank 20261129210000 cannot be"]),
        ("rank3.json", {"rank": 0, "world_size": 1}, 3, None, []),
    ],
)
def test_numbers_of_ranks_that_cannot_be_are_ignored_and_noted(
    tmp_path: Path, name: str, info: dict[str, int], rank: int, world: int | None, notes: list[str]
) -> None:
    path = write(tmp_path / name, {"distributedInfo": info, "traceEvents": [op("a", 1, 2)]})
    trace = load_rank(path)
    assert (trace.coordinates.rank, trace.coordinates.world_size) == (rank, world)
    assert [found.startswith(note) for found, note in zip(trace.notes, notes, strict=True)] == [True] * len(notes)
    assert len(merge([trace]).missing_ranks) < 4


@pytest.mark.parametrize(
    ("args", "kept", "odd"),
    [
        ('{"a": 1, "b": -2.5e3}', {"a": 1, "b": -2.5e3}, 0),
        ('{"a": "5"}', {"a": "5"}, 0),
        ("{}", {}, 0),
        ('{"a": 1, "b": "x", "c": {"d": 2}, "e": null, "f": [1], "g": true, "h": 1e400}', {"a": 1}, 6),
        ("[]", None, 1),
        ("null", None, 1),
    ],
)
def test_counters_keep_their_numbers(tmp_path: Path, args: str, kept: dict[str, object] | None, odd: int) -> None:
    counter = {"ph": "C", "name": "c", "pid": 1, "tid": 1, "ts": 2, "args": "here"}
    text = json.dumps({"traceEvents": [op("a", 1, 2), counter]}).replace('"here"', args).encode()
    path = write(tmp_path / "rank0.json", text)
    trace = load_rank(path)
    assert [json.loads(bytes(c.args or b"null")) for c in trace.counters] == ([] if kept is None else [kept])
    assert sum(d.count for d in trace.dropped if d.reason == "counter value that is no number") == odd
    assert check_file(path).odd_counters == (1 if odd else 0)
    assert check_file(write_chrome_json(merge([trace]), tmp_path / "merged.json")).ok
