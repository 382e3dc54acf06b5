"""What a listener hears, in the order in which the host does it; and how streams and events keep time."""

from __future__ import annotations

import ctypes
import gc
from typing import Any

import pytest
import torch

from dsv4prof.model.syncs import Kind
from dsv4prof.sync.runtime.shadow import ShadowDevice, memory_of
from dsv4prof.sync.runtime.shadow.timeline import Timeline


class Heard:
    """Notes names and the arguments that are plain."""

    def __init__(self) -> None:
        self.log: list[tuple[Any, ...]] = []

    def op(self, call: Any, result: Any) -> None:
        self.log.append(("op", call.name, call.stream))

    def op_begins(self, call: Any) -> None:
        self.log.append(("op_begins", call.name))

    def __getattr__(self, name: str) -> Any:
        return lambda *args: self.log.append((name, *args))

    def of(self, *names: str) -> list[tuple[Any, ...]]:
        return [one for one in self.log if one[0] in names]


def test_waits_come_after_what_is_waited_for() -> None:
    heard = Heard()
    with ShadowDevice("cuda", lambda _: None, heard):
        x = torch.ones(3, device="cuda")
        heard.log.clear()
        x.cpu()
        x.sum().item()
    names = [(one[0], one[1]) for one in heard.log]
    assert names == [
        ("op_begins", "aten::_to_copy"), ("op", "aten::_to_copy"), ("host_waits_stream", 0),
        ("op_begins", "aten::sum"), ("op", "aten::sum"),
        ("op_begins", "aten::_local_scalar_dense"), ("op", "aten::_local_scalar_dense"), ("host_waits_stream", 0),
    ]  # fmt: skip


def test_streams_and_events_are_told_by_their_handles() -> None:
    heard = Heard()
    with ShadowDevice("cuda", lambda _: None, heard):
        side, event = torch.cuda.Stream(), torch.cuda.Event()
        x = torch.ones(3, device="cuda")
        event.record()
        side.wait_event(event)
        with torch.cuda.stream(side):
            x += 1
        torch.cuda.current_stream().wait_stream(side)
        event.query()
        event.synchronize()
        side.synchronize()
        torch.cuda.synchronize()
        ids = side.cuda_stream, event.cuda_event
    stream, number = ids
    assert ("op", "aten::add_", stream) in heard.log
    kinds = ("event_recorded", "stream_waits_event", "stream_waits_stream", "event_queried", "host_waits_event")
    assert heard.of(*kinds, "host_waits_stream", "host_waits_device") == [
        ("event_recorded", number, 0), ("stream_waits_event", stream, number), ("stream_waits_stream", 0, stream),
        ("event_queried", number, False), ("host_waits_event", number), ("host_waits_stream", stream),
        ("host_waits_device",),
    ]  # fmt: skip


def test_memory_given_back_is_told_once_its_last_view_is_gone() -> None:
    heard = Heard()
    with ShadowDevice("cuda", lambda _: None, heard):
        x = torch.ones(1000, device="cuda")
        pinned = torch.ones(500, pin_memory=True)
        ranges = [memory_of(x), memory_of(pinned)]
        view = x[10:]
        del x
        gc.collect()
        assert ("freed", *ranges[0]) not in heard.log
        del view, pinned
        gc.collect()
        assert [("freed", *one) in heard.log for one in ranges] == [True, True]


def test_raw_copies_and_host_reads_are_told() -> None:
    heard = Heard()
    with ShadowDevice("cuda", lambda _: None, heard):
        source = torch.arange(4).pin_memory()
        target = torch.zeros(4, dtype=torch.long, device="cuda")
        copy = ctypes.CDLL("libcudart.so.13").cudaMemcpyAsync
        stream = torch.cuda.current_stream().cuda_stream
        status = copy(
            ctypes.c_void_p(target.data_ptr()), ctypes.c_void_p(source.data_ptr()), ctypes.c_size_t(32),
            ctypes.c_int(1), ctypes.c_void_p(stream),
        )  # fmt: skip
        assert (status, target.tolist()) == (0, [0, 1, 2, 3])
        expected = ("raw_copy", target.data_ptr(), source.data_ptr(), 32, 0)
        heard.log[:] = [one for one in heard.log if one[0] != "host_reads"]
        source.numpy()
        source[0].item()
        source.tolist()
    assert expected in heard.log
    assert len(heard.of("host_reads")) == 3


def test_an_idle_stream_costs_a_call_only() -> None:
    seen: list[Any] = []
    with ShadowDevice("cuda", seen.append):
        x, side = torch.ones((), device="cuda"), torch.cuda.Stream()
        with torch.cuda.stream(side):
            x.item()
        side.synchronize()
        side.wait_stream(torch.cuda.current_stream())
        side.synchronize()
        event = torch.cuda.Event()
        event.synchronize()
        event.record()
        event.synchronize()
        event.synchronize()
    assert [(one.kind, one.form) for one in seen] == [
        (Kind.SUSPECT, "item"), (Kind.SUSPECT, "stream-synchronize"), (Kind.SYNC, "stream-synchronize"),
        (Kind.SYNC, "event-synchronize"),
    ]  # fmt: skip


def test_a_loop_over_query_ends_and_a_lagging_device_catches_up() -> None:
    time = Timeline()
    time.launch(0)
    mark = time.record(0)
    asked = 0
    while not time.query(mark):
        asked += 1
    assert 10 < asked < 1000
    time.launch(0)
    mark = time.record(0)
    assert not time.query(mark)
    for _ in range(2000):
        time.launch(0)
    assert time.query(mark)
    time.occupy()
    mark = time.record(0)
    for _ in range(2000):
        time.launch(0)
    assert not time.query(mark)
    time.wait_device()
    assert time.query(mark)


@pytest.mark.parametrize("nbytes", [1 << 28, 1 << 10])
def test_an_empty_cache_waits_only_for_blocks_that_it_gives_back(nbytes: int) -> None:
    seen: list[Any] = []
    with ShadowDevice("cuda", seen.append):
        torch.cuda.empty_cache()
        held = torch.empty(nbytes, dtype=torch.uint8, device="cuda")
        assert torch.cuda.memory_allocated() >= nbytes
        del held
        torch.cuda.empty_cache()
    assert [one.form for one in seen] == (["empty-cache"] if nbytes > 1 << 20 else [])
