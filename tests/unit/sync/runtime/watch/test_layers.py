"""Layers that look at torch itself: operators with reasons, copies that ask not to block, torch's own trace."""

from __future__ import annotations

import functools
import warnings
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from dsv4prof.model.syncs import Kind  # noqa: E402
from dsv4prof.sync.runtime.watch import (  # noqa: E402
    SyncWatch,
    region,
    stacks,
)
from dsv4prof.sync.runtime.watch.hub import LayerMissingError  # noqa: E402
from dsv4prof.sync.runtime.watch.layers import copies, dispatch, gpu_trace  # noqa: E402
from fake_sync_mode import FakeDevice  # noqa: E402


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> FakeDevice:
    """CPU tensors of four elements and more pass for tensors on a device."""
    found = FakeDevice(monkeypatch)
    place = lambda tensor: "device" if tensor.numel() >= 4 else "pageable"  # noqa: E731
    monkeypatch.setattr(dispatch, "place_of", place)
    monkeypatch.setattr(copies, "place_of", place)
    return found


def test_operators_have_reasons_in_regions_alone(device: FakeDevice) -> None:
    values = torch.tensor([1, 0, 2, 3])
    with SyncWatch(layers=("dispatch",)) as watch:
        values.nonzero()
        with region("build"):
            values.nonzero()
            values + 1
    (event,) = watch.events
    assert (event.op, event.kind, event.code, event.region) == ("aten::nonzero", Kind.SYNC, "DSV105", "build")
    assert event.shapes == ((4,),)
    assert event.layers == ("dispatch",)
    assert event.blocked_ns is not None


def test_a_large_region_is_not_looked_into(device: FakeDevice) -> None:
    values = torch.tensor([1, 0, 2, 3])
    with SyncWatch(layers=("warn", "dispatch")) as watch, region("phase", operators=False):
        values.nonzero()
        device.waits()
        with region("build"):
            values.nonzero()
    assert [(event.layers, event.region, event.missing) for event in watch.events] == [
        (("warn",), "phase", ()),
        (("dispatch",), "phase/build", ("warn",)),
    ]


def test_a_scalar_read_has_the_form_of_the_line(device: FakeDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "place_of", lambda tensor: "device")
    values, bound = torch.arange(8), torch.tensor(3)
    with SyncWatch(layers=("dispatch",)) as watch, region("build"):
        values[:bound]
        int(bound)
        bound.item()
    assert [event.form for event in watch.events] == ["slice-bound", "scalar-conversion", "item"]
    assert [event.code for event in watch.events] == ["DSV110", "DSV112", "DSV112"]


def test_repeat_interleave_waits_twice_in_one_event(device: FakeDevice) -> None:
    repeats = torch.tensor([1, 0, 2, 3])
    with SyncWatch(layers=("dispatch",)) as watch, region("build"):
        torch.repeat_interleave(repeats, repeats)
        torch.repeat_interleave(repeats, repeats, output_size=6)
    (event,) = watch.events
    assert event.times == 2
    assert watch.syncs == 2


def test_torch_that_does_not_warn_of_an_operator_with_a_reason_is_drift(device: FakeDevice) -> None:
    values = torch.tensor([1, 0, 2, 3])
    with SyncWatch(layers=("warn", "dispatch")) as watch, region("build"):
        values.nonzero()
        device.waits()
    known, unknown = watch.events
    assert (known.layers, known.missing) == (("dispatch",), ("warn",))
    assert (unknown.layers, unknown.missing) == (("warn",), ("dispatch",))


def test_the_same_tensor_read_twice_is_redundant_until_it_is_written(device: FakeDevice) -> None:
    values = torch.tensor([1, 0, 2, 3])
    with SyncWatch(layers=("dispatch",)) as watch, region("build"):
        values.nonzero()
        values.nonzero()
        values.add_(1)
        values.nonzero()
    assert [event.kind for event in watch.events] == [Kind.SYNC, Kind.REDUNDANT, Kind.SYNC]
    assert [event.code for event in watch.events] == ["DSV105", "DSV112", "DSV105"]


def test_a_freed_tensor_is_not_the_next_one_at_its_address(device: FakeDevice) -> None:
    with SyncWatch(layers=("dispatch",)) as watch, region("build"):
        for _ in range(5):
            torch.ones(4).nonzero()
    assert {event.kind for event in watch.events} == {Kind.SYNC}


def test_other_threads_are_not_in_the_region(device: FakeDevice) -> None:
    import threading

    values = torch.tensor([1, 0, 2, 3])
    with SyncWatch(layers=("dispatch",)) as watch, region("build"):
        thread = threading.Thread(target=values.nonzero)
        thread.start()
        thread.join()
    assert watch.events == []


def test_what_torch_does_another_way_under_a_mode_runs_without_it(device: FakeDevice) -> None:
    """`any` and `nonzero` look for zeros in a backward of products, but not while a dispatch mode is on."""
    values = torch.nn.Parameter(torch.tensor([1.0, 0.0, 2.0, 3.0]))
    engine, product = torch.autograd.graph._engine_run_backward, values.prod()
    with SyncWatch(layers=("explicit", "dispatch")) as watch, region("train"):
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
            product.backward()
        logs = torch.zeros(5, 2, 4).log_softmax(2)
        assert torch.nn.functional.ctc_loss(logs, torch.ones(2, 2, dtype=torch.long), (5, 5), (2, 2)) > 0
        torch.tensor([1, 0, 2, 3]).nonzero()
    assert "aten::nonzero" in {each.name for each in profiler.events()}
    assert [event.op for event in watch.events] == ["aten::nonzero"]
    assert torch.autograd.graph._engine_run_backward is engine
    assert torch._C._len_torch_dispatch_stack() == 0


def test_layers_share_the_patch_of_backward_in_any_order(device: FakeDevice) -> None:
    engine = torch.autograd.graph._engine_run_backward
    first, second = SyncWatch(layers=("explicit",)), SyncWatch(layers=("dispatch",))
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    torch.nn.Parameter(torch.ones(4)).sum().backward()
    assert torch.autograd.graph._engine_run_backward is not engine
    second.__exit__(None, None, None)
    assert torch.autograd.graph._engine_run_backward is engine


def test_copies_that_ask_not_to_block(device: FakeDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def into(target: Any, args: Any, kwargs: Any) -> Any:
        asked.append(kwargs)
        return copies.OpCall(
            "aten::copy_", "", (target, args[0], True), {}, lambda t: "pageable" if t is target else "device"
        )

    monkeypatch.setattr(copies, "_into", into)
    target, source = torch.zeros(8), torch.ones(8)
    with SyncWatch(layers=("copies",)) as watch:
        target.copy_(source)
        assert asked == []
        target.copy_(source, non_blocking=True)
        target.copy_(source, True)
    assert [event.kind for event in watch.events] == [Kind.SILENT, Kind.SILENT]
    assert watch.events[0].form == "copy-to-pageable-nonblocking"
    assert watch.events[0].stack[0].file == __file__
    assert torch.equal(target, source)


def test_a_copy_within_one_place_is_not_asked_about(device: FakeDevice) -> None:
    with SyncWatch(layers=("copies",)) as watch:
        torch.zeros(8).copy_(torch.ones(8), non_blocking=True)
        torch.ones(8).to(torch.float64, non_blocking=True)
        torch.ones(8).to("cpu", torch.float64, True)
    assert watch.events == []


def test_pinned_memory_is_asked_about_once_and_again_after_the_watch(
    device: FakeDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(copies, "_ASK_AGAIN", 1 << 40)
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda tensor: bool(asked.append(tensor.data_ptr()) or True))
    host, other = torch.zeros(3), torch.zeros(3)
    for _ in range(2):
        with SyncWatch(layers=("copies",)) as watch:
            for _ in range(20):
                copies._copy_to(host, torch.device("cuda"))
                copies._copy_to(other, torch.device("cuda"))
        assert asked == [host.data_ptr(), other.data_ptr()]
        asked.clear()
        assert not watch.events


def test_torchs_trace_is_heard_until_the_watch_ends(device: FakeDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch.cuda import _gpu_trace as trace

    switched = []
    monkeypatch.setattr(torch._C, "_activate_gpu_trace", lambda: switched.append(1))
    before = len(trace.StreamSynchronizationCallbacks.callback_list)
    with SyncWatch(layers=("gpu_trace", "warn"), own_process=True) as watch:
        # As torch does within one call: the trace at each wait, the warnings when the call returns.
        fire = functools.partial(trace.StreamSynchronizationCallbacks.fire_callbacks, 5)
        warn = functools.partial(warnings.warn, "called a synchronizing CUDA operation", UserWarning)
        for _ in range(2):
            list(map(functools.partial.__call__, [fire, fire, warn, warn]))
        trace.DeviceSynchronizationCallbacks.fire_callbacks()
    assert switched == [1]
    assert len(trace.StreamSynchronizationCallbacks.callback_list) == before
    assert watch.syncs == 5
    assert [event.layers for event in watch.events] == [("gpu_trace", "warn")] * 4 + [("gpu_trace",)]
    assert watch.events[0].stream == 5
    assert watch.events[-1].form == "cuda-synchronize"


def test_a_torch_without_that_trace_is_told_so(device: FakeDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch._C, "_activate_gpu_trace")
    with pytest.raises(LayerMissingError, match="no trace of synchronization"):
        gpu_trace.GpuTraceLayer.start(gpu_trace.GpuTraceLayer(None))  # type: ignore[arg-type]


def test_a_torch_without_a_sync_mode_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeDevice(monkeypatch)
    monkeypatch.delattr(torch._C, "_cuda_set_sync_debug_mode")
    with pytest.raises(LayerMissingError, match="no sync debug mode"), SyncWatch():
        pass


def test_stacks_are_those_of_python_without_torch_and_this_package() -> None:
    class Builder:
        def build(self) -> stacks.Place:
            return stacks.here()

    place = Builder().build()
    first, second = place.frames[:2]
    assert first.function.endswith("Builder.build")
    assert second.function == "test_stacks_are_those_of_python_without_torch_and_this_package"
    lines = [line.strip() for line in Path(__file__).read_text().splitlines()]
    assert lines[first.line - 1] == "return stacks.here()"
    assert lines[second.line - 1] == "place = Builder().build()"
    assert not [frame for frame in place.frames if "/dsv4prof/" in frame.file or "/torch/" in frame.file]


def test_a_place_that_is_reached_often_keeps_its_way_and_others_have_theirs() -> None:
    def reads() -> tuple[str, ...]:
        return tuple(frame.function.rpartition(".")[2] for frame in stacks.here().frames[:3])

    def one() -> tuple[str, ...]:
        return reads()

    def other() -> tuple[str, ...]:
        return reads()

    for _ in range(100):
        assert one()[:2] == ("reads", "one")
    assert other()[:2] == ("reads", "other")
    assert one()[2] == "test_a_place_that_is_reached_often_keeps_its_way_and_others_have_theirs"


@pytest.mark.gpu
def test_copies_between_memory_of_each_kind() -> None:
    on_device = torch.arange(1024.0, device="cuda")
    pinned, pageable = torch.empty(1024, pin_memory=True), torch.empty(1024)
    with SyncWatch(layers=("copies",)) as watch:
        pinned.copy_(on_device, non_blocking=True)
        on_device.copy_(pinned, non_blocking=True)
        pinned.to("cuda", non_blocking=True)
        pinned.cuda(non_blocking=True)
        on_device.to("cpu", non_blocking=True)
    assert watch.events == []
    with SyncWatch(layers=("copies",)) as watch:
        pageable.copy_(on_device, non_blocking=True)
        pinned[::2].copy_(on_device[::2], non_blocking=True)
        pageable.to("cuda", non_blocking=True)
        torch.empty(4 << 20).to("cuda", non_blocking=True)
    assert [event.kind for event in watch.events] == [Kind.SILENT, Kind.SILENT, Kind.SUSPECT, Kind.SILENT]
