"""What the watch writes down, with a device that is made of plain Python."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("torch", reason="the engine extra is not installed")

import torch

from dsv4prof.faultrecord.layout import Cell, Kind
from dsv4prof.faultrecord.reader import FaultRecord, read_fault_record
from dsv4prof.faultrecord.ring import RingWriter
from dsv4prof.sync.runtime.faultwatch import kernels
from dsv4prof.sync.runtime.faultwatch.buffers import BufferTable
from dsv4prof.sync.runtime.faultwatch.operators import LaunchNotes, LaunchState
from dsv4prof.sync.runtime.faultwatch.progress import DeviceProgress, HostProgress
from dsv4prof.sync.runtime.faultwatch.watch import FaultWatch
from dsv4prof.target.hooks import ProfilingHooks
from dsv4prof.target.watching import WatchedHooks


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[FaultWatch]:
    with FaultWatch(tmp_path, device=None) as watch:
        yield watch


def read(watch: FaultWatch) -> FaultRecord:
    return read_fault_record(watch.path)


def test_an_operator_with_its_memory_and_place(watch: FaultWatch) -> None:
    table, index = torch.ones(10, 4), torch.tensor([1, 2])
    with watch.step(7, kind="decode", requests=2), watch.phase("draft"), watch.span("build"):
        rows = table.index_select(0, index)
    launch = next(each for each in read(watch).launches if each.operator == "aten::index_select")
    assert (launch.step, launch.phase, launch.span) == (7, "draft", "build")
    assert [(each.what, each.address, each.nbytes) for each in launch.touches] == [
        ("self float32[10, 4]", table.data_ptr(), 160),
        ("index int64[2]", index.data_ptr(), 16),
    ]
    made = next(each for each in read(watch).buffers if each.address == rows.data_ptr())
    assert (made.operator, made.freed, made.made_here) == ("aten::index_select", 0, True)


def test_a_view_is_told_by_what_it_spans_and_launches_nothing(watch: FaultWatch) -> None:
    table = torch.ones(10, 4)
    table[2:4, 1:3].add_(1)
    launches = [each for each in read(watch).launches if each.kind is Kind.OPERATOR]
    assert [each.operator for each in launches] == ["aten::ones", "aten::add_.Tensor"] or launches[-1].operator == (
        "aten::add_.Tensor"
    )
    touch = launches[-1].touches[0]
    assert touch.written
    assert touch.address == table.data_ptr() + (2 * 4 + 1) * 4
    assert touch.nbytes == (4 + 2) * 4
    assert not any("slice" in each.operator for each in launches)


def test_a_buffer_lives_until_its_last_view_is_gone(watch: FaultWatch) -> None:
    base = torch.full((64,), 2.0)
    address, view = base.data_ptr(), base[3:]
    del base
    assert next(each for each in read(watch).buffers if each.address == address).freed == 0
    last = read(watch).cells[Cell.LAST]
    del view
    freed = next(each for each in read(watch).buffers if each.address == address)
    assert freed.freed == last
    assert freed.nbytes == 256


def test_memory_that_is_used_again_is_another_buffer(watch: FaultWatch) -> None:
    for number in range(5):
        torch.full((1000,), float(number))
    addresses = [each.address for each in read(watch).buffers if each.what == "result float32[1000]"]
    assert len(addresses) == 5


def test_a_list_of_tensors(watch: FaultWatch) -> None:
    torch.cat([torch.ones(2), torch.ones(3)])
    launch = next(each for each in read(watch).launches if each.operator == "aten::cat")
    assert [each.what for each in launch.touches] == ["tensors float32[2]", "tensors float32[3]"]


def test_tensors_without_memory_pass(watch: FaultWatch) -> None:
    torch.ones(3, device="meta").add_(1)
    torch.ones(2, 2).to_sparse().sum()
    assert read(watch).torn == 0


def test_an_exception_leaves_the_step_open(tmp_path: Path) -> None:
    watch = FaultWatch(tmp_path, device=None)
    with pytest.raises(RuntimeError), watch, watch.step(3), watch.phase("verify"):
        torch.ones(2) @ torch.ones(3)
    record = read_fault_record(watch.path)
    assert not record.ended
    assert record.cells[Cell.STEP] == 1
    assert record.cells[Cell.STEPS_DONE] == 0
    assert record.device_error.startswith("RuntimeError: ")
    assert record.last is not None
    assert record.last.phase == "verify"


def test_rows_are_given_to_the_last_freed_ones(tmp_path: Path) -> None:
    ring = RingWriter(tmp_path / "r", facts={}, launches=4, captured=1, buffers=3)
    table = BufferTable(ring, step=lambda: 1)
    storages = [torch.ones(4).untyped_storage() for _ in range(5)]
    for number, storage in enumerate(storages):
        table.see(storage.data_ptr(), storage, number=number + 1, description=0, operator=0, stream=0, made=True)
    assert table.untold == 2, "where all rows are alive, more cannot be told"
    gone = storages[1].data_ptr()
    storage = None
    del storages[1]
    assert {each.address: each.freed for each in read_fault_record(ring.path).buffers}[gone] > 0
    fresh = torch.ones(9).untyped_storage()
    table.see(fresh.data_ptr(), fresh, number=9, description=0, operator=0, stream=0, made=True)
    assert [each.nbytes for each in read_fault_record(ring.path).buffers].count(36) == 1


class FakeEvent:
    """Complete once its stream has come as far."""

    lost = False
    done = 0
    recorded = 0

    def record(self, stream: object) -> None:
        FakeEvent.recorded += 1
        self.at = FakeEvent.recorded

    def query(self) -> bool:
        if FakeEvent.lost:
            raise RuntimeError("CUDA error: an illegal memory access was encountered\nmore")
        return self.at <= FakeEvent.done


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    FakeEvent.lost, FakeEvent.done, FakeEvent.recorded = False, 0, 0
    state = SimpleNamespace(capturing=False)
    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: SimpleNamespace(cuda_stream=7))
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: state.capturing)
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda index: 7, raising=False)
    return state


def test_completion_is_asked_of_markers(tmp_path: Path, device: SimpleNamespace) -> None:
    ring = RingWriter(tmp_path / "r", facts={}, launches=64, captured=1, buffers=1)
    progress = DeviceProgress(ring, device=0, every=4)
    for number in range(1, 13):
        progress.launched(number, 7)
    assert FakeEvent.recorded == 3
    assert read_fault_record(ring.path).follows_device
    assert read_fault_record(ring.path).done == {7: 0}
    assert read_fault_record(ring.path).marked == {7: 4}
    FakeEvent.done = 2
    assert progress.poll()
    record = read_fault_record(ring.path)
    assert (record.done, record.marked) == ({7: 8}, {7: 12})
    FakeEvent.done = 3
    progress.poll()
    assert read_fault_record(ring.path).done == {7: 12}
    assert not progress.poll(), "nothing new"


def test_nothing_is_marked_in_a_capture(tmp_path: Path, device: SimpleNamespace) -> None:
    ring = RingWriter(tmp_path / "r", facts={}, launches=64, captured=1, buffers=1)
    progress = DeviceProgress(ring, device=0, every=1)
    device.capturing = True
    progress.launched(1, 7)
    assert FakeEvent.recorded == 0


def test_nobody_asks_while_paused_and_ends_of_phases_are_marked(tmp_path: Path, device: SimpleNamespace) -> None:
    ring = RingWriter(tmp_path / "r", facts={}, launches=64, captured=1, buffers=1)
    progress = DeviceProgress(ring, device=0, every=32)
    progress.boundary(1)
    assert FakeEvent.recorded == 0, "nothing was launched"
    progress.launched(2, 7)
    progress.boundary(3)
    assert read_fault_record(ring.path).marked == {7: 3}
    progress.pause(True)
    FakeEvent.done = 1
    assert not progress.poll()
    progress.launched(4, 7, mark=True)
    assert FakeEvent.recorded == 1
    progress.pause(False)
    assert progress.poll()


def test_a_lost_device_is_asked_once(tmp_path: Path, device: SimpleNamespace) -> None:
    ring = RingWriter(tmp_path / "r", facts={}, launches=64, captured=1, buffers=1)
    progress = DeviceProgress(ring, device=0, every=1)
    progress.launched(1, 7)
    FakeEvent.lost = True
    assert not progress.poll()
    assert progress.lost
    assert read_fault_record(ring.path).device_error == "CUDA error: an illegal memory access was encountered"
    progress.launched(2, 7)
    assert FakeEvent.recorded == 1


class FakeGraph:
    def capture_begin(self) -> str:
        return "begun"

    def capture_end(self) -> str:
        return "ended"

    def replay(self) -> str:
        return "replayed"


class FakeKernel:
    arg_names = ("table", "index")
    fn = SimpleNamespace(__name__="read_rows")

    def run(self, *args: object, **keywords: object) -> str:
        return "launched"


def test_graphs_and_kernels_are_wrapped_and_given_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "_graph_type", lambda: FakeGraph)
    monkeypatch.setattr(kernels, "_triton_run", lambda: FakeKernel)
    before = (FakeGraph.replay, FakeKernel.run)
    ring = RingWriter(tmp_path / "r", facts={}, launches=64, captured=16, buffers=16)
    state = LaunchState()
    notes = LaunchNotes(ring, BufferTable(ring, step=lambda: 0), HostProgress(), state)
    table = torch.ones(4, 4)
    with kernels.watched_kernels(ring, notes, state) as unseen:
        assert unseen == []
        graph = FakeGraph()
        assert graph.capture_begin() == "begun"
        assert FakeKernel().run(table, torch.tensor([1]), grid=(1,), warmup=False) == "launched"
        assert graph.capture_end() == "ended"
        assert graph.replay() == "replayed"
        FakeKernel().run(table, grid=(1,), warmup=True)
        FakeKernel().run(table, grid=(1,), warmup=False)
    assert (FakeGraph.replay, FakeKernel.run) == before
    record = read_fault_record(ring.path)
    assert [(each.kernel, each.graph) for each in record.captured] == [("read_rows", 1)]
    assert [each.what for each in record.captured[0].touches] == ["table float32[4, 4]", "index int64[1]"]
    assert [(each.kind, each.name) for each in record.launches] == [
        (Kind.GRAPH, "replay of graph #1"), (Kind.KERNEL, "read_rows"),
    ]  # fmt: skip


def test_a_batch_with_a_bad_length_is_told_as_it_is_made(watch: FaultWatch) -> None:
    hooks = WatchedHooks(watch, ProfilingHooks())
    with hooks.step(4, kind="decode", requests=3, rows=12):
        hooks.batch(SimpleNamespace(extend_lens_host=(4, 4, 4, 4), seq_lens_host=(9, 8, 7, -1)))
        hooks.batch(SimpleNamespace(extend_lens_host=(4, 4, 4), seq_lens_host=None))
    notes = [each.kernel for each in read(watch).launches if each.kind is Kind.NOTE]
    assert notes == [
        "metadata: seq_lens[3] = -1 in a padding slot (running 3, padded 4); as uint32 4294967295: a length below zero"
    ]
