"""On a GPU: CUDA graphs replayed under the recorder, released with proof again and again, and memory returned."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from dsv4prof.model.session import Outcome
from dsv4prof.recorder import RecordPlan, record

torch = pytest.importorskip("torch")
pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA or HIP device"),
]
_KERNELS_IN_GRAPH = 40
_REPLAYS = 50
_CYCLES = 30


def resident_mib() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20


def captured():
    """A graph of `_KERNELS_IN_GRAPH` kernels."""
    x = torch.randn(256, 256, device="cuda") / 16
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        for _ in range(3):
            torch.relu(x @ x)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = x
        for _ in range(_KERNELS_IN_GRAPH // 2):
            y = torch.relu(y @ x)
    return graph, y


def kernels_in(path: Path) -> int:
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    return sum(event.get("cat") == "kernel" for event in events)


@pytest.mark.parametrize("with_stack", [False, True])
def test_graphs_replayed_under_the_recorder_are_whole_and_everything_is_given_back(
    tmp_path: Path, with_stack: bool
) -> None:
    graph, y = captured()
    graph.replay()
    expected = y.clone()
    sizes, memory, pauses, exports = [], [], [], []
    for cycle in range(_CYCLES):
        with record(RecordPlan(active=5, with_stack=with_stack), root=tmp_path, name=f"cycle{cycle}") as recorder:
            for _ in range(5):
                for _ in range(_REPLAYS // 5):
                    graph.replay()
                torch.cuda.synchronize()
                recorder.step()
        (window,) = recorder.record.windows
        assert recorder.record.outcome is Outcome.COMPLETE, recorder.record.reason
        assert window.release is not None
        assert window.release.freed
        folder = max(tmp_path.iterdir(), key=lambda path: path.stat().st_mtime_ns)
        assert kernels_in(folder / str(window.trace)) >= _KERNELS_IN_GRAPH * _REPLAYS
        sizes.append(resident_mib())
        memory.append(torch.cuda.memory_allocated())
        pauses.append(window.release.collect_ns / 1e6)
        exports.append((window.export_ns or 0) / 1e6)
    y.zero_()
    graph.replay()
    assert torch.equal(y, expected), "a replay after the recordings gives what it gave before them"
    pause, export = (sum(values) / len(values) for values in (pauses, exports))
    print(f"\n{_CYCLES} cycles of {_REPLAYS} replays of {_KERNELS_IN_GRAPH} kernels")
    print(f"RSS after cycle 10 {sizes[9]:.0f} MiB, after the last {sizes[-1]:.0f} MiB; GPU memory {set(memory)} bytes")
    print(f"gc.collect() {pause:.0f} ms, export {export:.0f} ms")
    assert sizes[-1] < sizes[9] + max(20, 0.1 * sizes[9])
    assert len(set(memory)) == 1


def test_a_big_recording_returns_its_memory(tmp_path: Path) -> None:
    x = torch.randn(64, 64, device="cuda")
    with record(RecordPlan(active=1, with_stack=False), root=tmp_path):
        torch.relu(x @ x)
    before = resident_mib()
    with record(RecordPlan(active=None, with_stack=False, size_limit_mb=None), root=tmp_path, name="big") as recorder:
        for _ in range(40_000):
            torch.relu(x @ x)
        torch.cuda.synchronize()
    (window,) = recorder.record.windows
    proof = window.release
    assert proof is not None
    assert proof.freed
    held = proof.rss_before_bytes / 2**20 - before
    kept = proof.rss_after_bytes / 2**20 - before
    print(f"\n{window.events:,} events: {held:.0f} MiB held before the release, {kept:.0f} MiB after it; "
          f"stop {(window.stop_ns or 0) / 1e6:.0f} ms, export {(window.export_ns or 0) / 1e6:.0f} ms")  # fmt: skip
    assert kept < 0.25 * held
