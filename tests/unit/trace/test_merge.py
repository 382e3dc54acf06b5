"""Ranks side by side: own pids, names, arrows, lanes, one clock; and a file that loads back."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from isal import igzip

from dsv4prof.errors import InputError, OutputError
from dsv4prof.model.event import Slice
from dsv4prof.model.trace import MergedTrace
from dsv4prof.trace.check import check_file
from dsv4prof.trace.load import load_rank
from dsv4prof.trace.merge import load_ranks, load_readable, merge
from dsv4prof.trace.unmerge import is_merged, load_merged, load_merged_ranks
from traces import (
    BASE_NS,
    document,
    flow,
    kernel,
    launched_rank,
    merge_again,
    merged,
    meta,
    note,
    op,
    write,
    write_chrome_json,
)


def _written(trace: MergedTrace, folder: Path) -> dict[str, Any]:
    path = write_chrome_json(trace, folder / "merged.json.gz")
    return json.loads(igzip.decompress(path.read_bytes()))


def _by_phase(content: dict[str, Any], ph: str) -> list[dict[str, Any]]:
    return [event for event in content["traceEvents"] if event["ph"] == ph]


def test_two_containers_with_one_pid_stay_apart(tmp_path: Path) -> None:
    content = _written(merged(tmp_path, launched_rank(), launched_rank()), tmp_path)
    names = {e["pid"]: e["args"]["name"] for e in _by_phase(content, "M") if e["name"] == "process_name"}
    assert names == {1: "[rank 0] python", 2: "[rank 0] GPU 0", 3: "[rank 1] python", 4: "[rank 1] GPU 0"}
    assert {e["pid"] for e in content["traceEvents"]} == set(names)
    assert all(isinstance(e["pid"], int) and isinstance(e["tid"], int) for e in content["traceEvents"])


def test_arrows_stay_in_their_rank_with_ids_of_their_own(tmp_path: Path) -> None:
    content = _written(merged(tmp_path, launched_rank(), launched_rank(pid=7)), tmp_path)
    starts, ends = _by_phase(content, "s"), _by_phase(content, "f")
    assert len({e["id"] for e in starts}) == 2
    assert {e["id"]: (e["pid"] + 1) // 2 for e in starts} == {e["id"]: (e["pid"] + 1) // 2 for e in ends}
    assert all(isinstance(e["id"], int) and e["bp"] == "e" for e in ends)


def test_stream_names_and_order_survive_in_both_ranks(tmp_path: Path) -> None:
    content = _written(merged(tmp_path, launched_rank(), launched_rank()), tmp_path)
    streams = [
        e["pid"] for e in _by_phase(content, "M") if e["name"] == "thread_name" and "stream 7" in e["args"]["name"]
    ]
    assert streams == [2, 4]
    order = {e["pid"]: e["args"]["sort_index"] for e in _by_phase(content, "M") if e["name"] == "process_sort_index"}
    assert sorted(order, key=lambda pid: order[pid]) == [1, 2, 3, 4]


def test_other_base_times_are_put_on_one_axis(tmp_path: Path) -> None:
    early = write(tmp_path / "rank0.json", document([op("a", 10, 1)], rank=0, world=2))
    late = write(
        tmp_path / "rank1.json", {**document([op("a", 4, 1)], rank=1, world=2), "baseTimeNanoseconds": BASE_NS + 7000}
    )
    trace = merge([load_rank(late), load_rank(early)])
    assert [rank.trace.slices[0].start_ns - trace.origin_ns for rank in trace.ranks] == [0, 1000]
    content = _written(trace, tmp_path)
    assert [content["baseTimeNanoseconds"] + e["ts"] * 1000 for e in _by_phase(content, "X")] == [
        BASE_NS + 10_000,
        BASE_NS + 11_000,
    ]


def test_string_and_negative_places_get_integers_and_names(tmp_path: Path) -> None:
    events = [
        op("a", 1, 2),
        {
            "ph": "X",
            "cat": "Trace",
            "name": "PyTorch Profiler (0)",
            "pid": "Spans",
            "tid": "PyTorch Profiler",
            "ts": 0,
            "dur": 9,
        },
        {"ph": "X", "cat": "overhead", "name": "flush", "pid": -1, "tid": 0, "ts": 2, "dur": 1},
        {"ph": "X", "cat": "cuda_sync", "name": "Stream Sync", "pid": 100, "tid": -1, "ts": 2, "dur": 1},
    ]
    content = _written(merged(tmp_path, events), tmp_path)
    names = {e["pid"]: e["args"]["name"] for e in _by_phase(content, "M") if e["name"] == "process_name"}
    assert set(names.values()) == {"[rank 0] python", "[rank 0] profiler overhead", "[rank 0] Spans"}
    assert all(0 < e["pid"] < 100 and 0 <= e["tid"] < 2**31 for e in _by_phase(content, "X"))
    assert "PyTorch Profiler" in {e["args"].get("name") for e in _by_phase(content, "M") if e["name"] == "thread_name"}


def test_overlapping_slices_keep_their_times_on_a_lane_of_their_own(tmp_path: Path) -> None:
    events = [
        meta("thread_name", 0, 7, name="stream 7"),
        kernel("a", 0, 100),
        kernel("b", 50, 90),
        kernel("c", 200, 5),
        kernel("c", 200, 5),
    ]
    trace = merged(tmp_path, events)
    assert (trace.ranks[0].lane_count, len(trace.ranks[0].lanes)) == (1, 1)
    content = _written(trace, tmp_path)
    lane = next(e for e in _by_phase(content, "X") if e["name"] == "b")
    assert (lane["ts"], lane["dur"]) == (50, 90)
    assert {e["tid"] for e in _by_phase(content, "X") if e["name"] != "b"} == {7}
    names = {e["tid"]: e["args"]["name"] for e in _by_phase(content, "M") if e["name"] == "thread_name"}
    assert names[lane["tid"]] == "stream 7 (rank 0) (lane 2)"
    assert check_file(tmp_path / "merged.json.gz").ok


def test_an_arrow_follows_its_slice_to_the_lane(tmp_path: Path) -> None:
    events = [
        op("run", 0, 9),
        kernel("a", 10, 100),
        kernel("b", 50, 90),
        flow("s", 1, 0),
        flow("f", 1, 50, pid=0, tid=7),
    ]
    content = _written(merged(tmp_path, events), tmp_path)
    assert _by_phase(content, "f")[0]["tid"] == next(e for e in _by_phase(content, "X") if e["name"] == "b")["tid"]


@pytest.mark.parametrize(("at", "slice_name"), [(50, "b"), (60, "b"), (95, "a"), (120, "a"), (20, "outer")])
def test_an_arrow_begins_at_the_slice_that_was_opened_last(tmp_path: Path, at: float, slice_name: str) -> None:
    slices = [op("outer", 0, 100), op("a", 50, 100), op("b", 50, 40)]
    events = [*slices, kernel("k", 200, 5), flow("s", 1, at), flow("f", 1, 200, pid=0, tid=7)]
    content = _written(merged(tmp_path, events), tmp_path)
    tids = {e["name"]: e["tid"] for e in _by_phase(content, "X")}
    assert tids["a"] != tids["b"] == tids["outer"]
    assert _by_phase(content, "s")[0]["tid"] == tids[slice_name]


def test_async_ids_and_counters_are_kept_apart(tmp_path: Path) -> None:
    events = [
        op("a", 0, 1),
        {"ph": "C", "name": "mem", "pid": 100, "tid": 0, "ts": 2, "args": {"bytes": 5}},
        {"ph": "b", "id": "0x1", "cat": "req", "name": "r", "pid": 100, "tid": 1, "ts": 3},
        {"ph": "e", "id": "0x1", "cat": "req", "name": "r", "pid": 100, "tid": 1, "ts": 4},
    ]
    content = _written(merged(tmp_path, events, events), tmp_path)
    assert len({e["id"] for e in _by_phase(content, "b")}) == 2
    assert {e["id"] for e in _by_phase(content, "b")} == {e["id"] for e in _by_phase(content, "e")}
    assert [e["args"] for e in _by_phase(content, "C")] == [{"bytes": 5}] * 2


def test_the_order_of_input_does_not_matter(tmp_path: Path) -> None:
    traces = [rank.trace for rank in merged(tmp_path, launched_rank(), launched_rank(5), launched_rank(9)).ranks]
    files = [tmp_path / "a.json.gz", tmp_path / "b.json.gz"]
    write_chrome_json(merge(traces), files[0])
    write_chrome_json(merge(reversed(traces)), files[1])
    assert files[0].read_bytes() == files[1].read_bytes()


def test_missing_ranks_are_named(tmp_path: Path) -> None:
    files = [write(tmp_path / f"rank{r}.json", document([op("a", 1, 2)], rank=r, world=4)) for r in (0, 2)]
    assert merge(load_ranks(files)).missing_ranks == [1, 3]


def test_two_files_of_one_rank_are_refused(tmp_path: Path) -> None:
    files = [write(tmp_path / name, [op("a", 1, 2)]) for name in ("before-TP-0.json", "after-TP-0.json")]
    with pytest.raises(InputError, match="both claim rank 0"):
        merge(load_ranks(files))


def test_nothing_to_merge_is_refused() -> None:
    with pytest.raises(InputError, match="no trace"):
        merge([])


def test_an_unreadable_rank_is_an_error_or_is_told(tmp_path: Path) -> None:
    good = write(tmp_path / "rank0.json", [op("a", 1, 2)])
    bad = write(tmp_path / "rank1.json", b"")
    with pytest.raises(InputError, match="rank1"):
        load_ranks([good, bad])
    traces, errors = load_readable([good, bad])
    assert [trace.coordinates.rank for trace in traces] == [0]
    assert len(errors) == 1


def test_gloo_collectives_give_a_residual(tmp_path: Path) -> None:
    def rank(late: float) -> list[dict[str, Any]]:
        return [note("gloo:all_reduce", 100 * n + late, 50 + n) for n in range(20)]

    trace = merged(tmp_path, rank(0), rank(2), rank(0)[:2])
    clocks = trace.clocks
    assert (clocks[0].residual_ns, clocks[0].reason) == (0, "reference rank")
    assert (clocks[1].offset_ns, clocks[1].residual_ns, clocks[1].matches) == (2000, 0, 20)
    assert (clocks[2].offset_ns, clocks[2].residual_ns) == (0, None), "two are too few"
    assert [rank.trace.slices[0].start_ns - trace.origin_ns for rank in trace.ranks] == [0, 0, 0]


def test_a_merged_file_comes_apart_into_what_was_merged(tmp_path: Path) -> None:
    marks: list[dict[str, Any]] = [
        {"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": 500},
        {
            "ph": "i",
            "s": "t",
            "name": "[memory]",
            "cat": "cpu_instant_event",
            "pid": 100,
            "tid": 100,
            "ts": 5,
            "args": {"Bytes": 4},
        },
    ]
    trace = merged(tmp_path, [*launched_rank(), *marks, kernel("late", 115, 90)], launched_rank())
    first = write_chrome_json(trace, tmp_path / "merged.json.gz")
    back = load_merged(first)
    for before, after in zip(trace.ranks, back.ranks, strict=True):
        assert sorted(before.trace.slices, key=_order) == sorted(after.trace.slices, key=_order)
        assert before.trace.coordinates == after.trace.coordinates
        assert {p.name for p in before.trace.instants} == {p.name for p in after.trace.instants}
    assert merge_again(first, tmp_path / "again.json.gz").read_bytes() == first.read_bytes()


def _order(event: Slice) -> tuple[int, int, str]:
    return event.start_ns, -event.dur_ns, event.name


def test_window_marks_are_in_the_metadata_and_not_on_the_time_line(tmp_path: Path) -> None:
    mark = {"ph": "i", "s": "g", "name": "Record Window End", "pid": "", "tid": "", "ts": 500}
    content = _written(merged(tmp_path, [op("a", 1, 2), mark]), tmp_path)
    assert _by_phase(content, "i") == []
    assert [m["name"] for m in content["dsv4prof"]["ranks"][0]["markers"]] == ["Record Window End"]
    assert {e["args"].get("name") for e in _by_phase(content, "M") if e["name"] == "process_name"} == {
        "[rank 0] python"
    }


def test_merged_files_are_recognised_and_not_taken_for_a_rank(tmp_path: Path) -> None:
    path = write_chrome_json(merged(tmp_path, launched_rank()), tmp_path / "merged.json.gz")
    plain = write_chrome_json(merged(tmp_path, launched_rank()), tmp_path / "merged.json")
    assert is_merged(path)
    assert is_merged(plain)
    assert not is_merged(tmp_path / "rank0.json")
    with pytest.raises(InputError, match="merged trace"):
        load_rank(path)
    with pytest.raises(InputError, match="not a merged trace"):
        load_merged_ranks(tmp_path / "rank0.json")


def test_what_was_dropped_travels_with_the_merged_file(tmp_path: Path) -> None:
    trace = merged(tmp_path, [op("a", 1, 2), flow("f", 5, 3)])
    content = _written(trace, tmp_path)
    assert content["dsv4prof"]["ranks"][0]["dropped"] == [
        {"count": 1, "reason": "arrow end without a start", "harmless": True}
    ]
    assert content["dsv4prof"]["ranks"][0]["counts"]["slices"] == 1


def test_nothing_is_left_behind_when_writing_fails(tmp_path: Path) -> None:
    trace = merged(tmp_path, launched_rank())
    with pytest.raises(OutputError, match="cannot write") as caught:
        write_chrome_json(trace, tmp_path / "absent" / "merged.json.gz")
    assert caught.value.hint
    folder = tmp_path / "merged.json.gz"
    folder.mkdir()
    with pytest.raises(OutputError):
        write_chrome_json(trace, folder)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["merged.json.gz", "rank0.json"]


def test_large_offsets_are_written_to_the_nanosecond(tmp_path: Path) -> None:
    trace = merged(tmp_path, [op("a", 0, 1), op("b", 7_776_000_000_000.001, 0.003)])
    text = igzip.decompress(write_chrome_json(trace, tmp_path / "m.json.gz").read_bytes())
    assert b'"ts":7776000000000.001,"dur":0.003' in text


def test_ranks_a_century_apart_load_back_to_the_nanosecond(tmp_path: Path) -> None:
    far = 2**62 // 1000 - 5
    late = write(
        tmp_path / "rank0.json", {"baseTimeNanoseconds": 2**62 - 1, "traceEvents": [op("a", f"{far}.001", "0.001")]}
    )
    early = write(tmp_path / "rank1.json", {"traceEvents": [op("b", 0, 1), op("c", 10, 2)]})
    first = write_chrome_json(merge([load_rank(late), load_rank(early)]), tmp_path / "first.json")
    again = load_merged(first)
    assert again.ranks[0].trace.slices[0].start_ns == 2**62 - 1 + far * 1000 + 1
    assert write_chrome_json(again, tmp_path / "second.json").read_bytes() == first.read_bytes()


def test_a_residual_is_given_only_where_something_was_matched(tmp_path: Path) -> None:
    gathered = [note("gloo:all_reduce", 5 + 10 * n, 2) for n in range(6)]
    assert [fit.residual_ns for fit in merged(tmp_path, gathered).clocks] == [None]
    assert [fit.residual_ns for fit in merged(tmp_path, gathered, [op("a", 1, 2)]).clocks] == [None, None]
    assert [fit.residual_ns for fit in merged(tmp_path, gathered, gathered).clocks] == [0, 0]
