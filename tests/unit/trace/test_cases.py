"""Inputs from public bug reports: what each should give. Skipped where the reference material is absent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dsv4prof.analysis.quality import analyze_quality
from dsv4prof.api import merge as merge_report
from dsv4prof.errors import InputError
from dsv4prof.model.trace import MergedTrace
from dsv4prof.trace.check import check_file
from dsv4prof.trace.index import TraceIndex
from dsv4prof.trace.load import load_rank
from dsv4prof.trace.merge import load_readable, merge
from dsv4prof.trace.unmerge import load_merged_ranks
from dsv4prof.trace.vendor import is_launch
from traces import write_chrome_json


@pytest.fixture
def case(shared: Path):  # type: ignore[no-untyped-def]
    def find(number: str, *names: str) -> list[Path]:
        (folder,) = (shared / "cases").glob(f"{number}-*")
        return [folder / name for name in names] if names else sorted(folder.glob("*.json*"))

    return find


def _merge(paths: list[Path]) -> MergedTrace:
    return merge([load_rank(path) for path in paths])


def _round_trip(trace: MergedTrace, tmp_path: Path) -> None:
    path = write_chrome_json(trace, tmp_path / "merged.json.gz")
    assert check_file(path).ok
    back = load_merged_ranks(path)
    for before, after in zip(trace.ranks, back, strict=True):
        assert sorted(map(repr, map(_plain, before.trace.slices))) == sorted(map(repr, map(_plain, after.slices)))


def _plain(event) -> tuple[object, ...]:  # type: ignore[no-untyped-def]
    return event.name, event.category, event.track, event.start_ns, event.dur_ns


def test_12_two_writers_are_refused_with_the_place(case) -> None:
    (path,) = case("12", "interleaved.json")
    with pytest.raises(InputError, match="line 19, byte 300; the likely cause is two writers"):
        load_rank(path)


def test_15_an_unescaped_quote_damages_one_event(case, tmp_path: Path) -> None:
    bad, good = (load_rank(path) for path in case("15", "bad.json", "good_twin.json"))
    assert (len(bad.slices), sum(d.count for d in bad.dropped)) == (4, 1)
    assert (len(good.slices), good.dropped) == (5, [])
    assert bad.dropped[0].reason.startswith("damaged event at line 38, byte 542: its text is not JSON: ")
    with pytest.raises(InputError, match="line 38, byte 542"):
        merge_report([bad.source], output=tmp_path / "merged.json", strict=True)


def test_17_strict_reading_says_where_the_first_control_character_is(case, tmp_path: Path) -> None:
    (path,) = case("17", "ctl.json")
    with pytest.raises(InputError, match=r"raw control characters .* line 41, byte 612"):
        merge_report([str(path)], output=tmp_path / "merged.json", strict=True)


@pytest.mark.parametrize(("name", "events"), [("ctl", 5), ("bad_utf8", 5), ("lone_surrogate", 5), ("nan", 4)])
def test_17_damaged_text_is_mended(case, tmp_path: Path, name: str, events: int) -> None:
    (path,) = case("17", f"{name}.json")
    trace = load_rank(path)
    assert len(trace.slices) == events
    assert len(trace.notes) == 1
    _round_trip(merge([trace]), tmp_path)


@pytest.mark.parametrize("second", ["rank1.json", "rank1_clash.json"])
def test_20_flows_and_pids_of_two_ranks(case, tmp_path: Path, second: str) -> None:
    trace = _merge(case("20", "rank0.json", second))
    assert [len(rank.trace.slices) for rank in trace.ranks] == [6, 6]
    ids = {rank.flow_base + int(point.id) for rank in trace.ranks for point in rank.trace.flows}
    assert len(ids) == 4
    pids = [pid for rank in trace.ranks for pid in rank.pids.values()]
    assert len(set(pids)) == 4
    _round_trip(trace, tmp_path)


def test_22_metadata_goes_with_the_events(case, tmp_path: Path) -> None:
    trace = _merge(case("22", "rank0.json", "rank1.json"))
    rows = [row for rank in trace.ranks for row in rank.rows]
    streams = [row.pid for row in rows if str(row.thread_name).startswith("stream 7 (rank")]
    assert len(streams) == 2
    last = trace.ranks[1].trace
    assert (len(last.instants), len(last.counters), len(last.asyncs)) == (1, 1, 2)
    _round_trip(trace, tmp_path)


def test_23_a_broken_rank_is_not_an_empty_one(case) -> None:
    traces, errors = load_readable(case("23"))
    trace = merge(traces)
    assert [rank.trace.coordinates.rank for rank in trace.ranks] == [0, 2]
    assert ["TP-1" in error.message for error in errors] == [True]
    assert trace.missing_ranks == [1, 3]
    assert "DSV502" in {finding.code for finding in analyze_quality(TraceIndex(trace)).findings}


def test_24_overlaps_are_found_and_kept(case, tmp_path: Path) -> None:
    paths = case("24", "overlap.json")
    assert check_file(paths[0]).overlapping == 2
    trace = _merge(paths)
    assert (len(trace.ranks[0].lanes), trace.ranks[0].lane_count) == (2, 2)
    _round_trip(trace, tmp_path)


def test_26_times_as_text_are_exact(case, tmp_path: Path) -> None:
    path = case("26", "strings.json")[0]
    texts = [event["ts"] for event in json.loads(path.read_text())["traceEvents"] if event["ph"] == "X"]
    trace = load_rank(path)
    assert [event.start_ns for event in trace.slices] == [int(text.replace(".", "")) for text in texts]
    _round_trip(merge([trace]), tmp_path)


def test_27_no_device_records_is_unknown_not_idle(case) -> None:
    found = analyze_quality(TraceIndex(_merge(case("27")))).findings
    assert [(f.code, f.evidence["launches"]) for f in found] == [("DSV403", 25)]


def test_30_kernels_without_a_time_are_left_out(case) -> None:
    trace = load_rank(case("30", "zero_ts.json")[0])
    assert [(d.count, d.reason) for d in trace.dropped] == [(2, "GPU record without a time (time 0)")]


def test_47_a_late_end_goes_to_a_lane_with_its_true_time(case, tmp_path: Path) -> None:
    trace = _merge(case("47"))
    assert len(trace.ranks[0].trace.slices) == 6
    _round_trip(trace, tmp_path)


def test_49_amd_names_and_stream_zero(case) -> None:
    rank = TraceIndex(_merge(case("49")))[0]
    assert len(rank.gpu_ops) == 5
    launches = {
        rank.slices[i].name for i in rank.runtime_calls if rank.gpu_by_correlation.get(rank.correlation(i) or 0)
    }
    assert launches == {
        "hipLaunchKernel",
        "hipExtModuleLaunchKernel",
        "hipModuleLaunchKernel",
        "hipMemcpyAsync",
        "hipGraphLaunch",
    }
    assert all(is_launch(name) for name in launches - {"hipMemcpyAsync"})
