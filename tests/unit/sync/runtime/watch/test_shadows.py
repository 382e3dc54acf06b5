"""A watch on a machine without a GPU: shadow tensors, and what syncs protect."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Generator, Iterator

import pytest

torch = pytest.importorskip("torch")

from dsv4prof.model.syncs import Kind  # noqa: E402
from dsv4prof.sync.runtime.watch import SyncDisallowedError, SyncWatch, region, step  # noqa: E402


def test_syncs_have_operator_reason_place_and_region() -> None:
    with SyncWatch(gpu=False) as watch:
        lens = torch.tensor([1, 2, 3], device="cuda")
        with step(4), region("build"):
            rows = torch.repeat_interleave(lens, lens)
            assert rows.tolist() == [1, 2, 2, 3, 3, 3]
    upload, repeat, read = watch.events
    assert (upload.code, upload.direction, upload.region) == ("DSV108", "h2d", "")
    assert (repeat.op, repeat.times, repeat.code) == ("aten::repeat_interleave", 2, "DSV105")
    assert (read.code, read.step, read.region, read.layers) == ("DSV102", 4, "build", ("shadow",))
    assert all(event.stack[0].file == __file__ for event in watch.events)
    assert not torch.cuda.is_available()


def test_disallowed_is_raised_at_the_call() -> None:
    reached = []
    with pytest.raises(SyncDisallowedError, match="item"), SyncWatch(gpu=False, d2h="disallow"):
        torch.ones(3, device="cuda").sum().item()
        reached.append(1)
    assert not reached


def test_threads_are_told_apart() -> None:
    def other() -> None:
        with region("loader"):
            torch.ones(3, device="cuda").tolist()

    with SyncWatch(gpu=False) as watch, region("main"):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        torch.ones(3, device="cuda").tolist()
    assert [event.region for event in watch.events] == ["loader", "main"]


def test_the_same_value_read_twice_in_a_region_is_redundant() -> None:
    with SyncWatch(gpu=False) as watch, region("build"):
        total = torch.ones(3, device="cuda").sum()
        int(total)
        int(total)
        total.add_(1)
        int(total)
    assert [event.kind for event in watch.events] == [Kind.SYNC, Kind.REDUNDANT, Kind.SYNC]


def test_hazards_are_looked_for_on_request() -> None:
    with SyncWatch(gpu=False, hazards=True) as watch, step(3), region("copy"):
        values = torch.arange(8.0, device="cuda")
        there = torch.empty(8, pin_memory=True)
        there.copy_(values, non_blocking=True)
        there.tolist()
    assert "DSV202" in [finding.code for finding in watch.hazards]
    with SyncWatch(gpu=False, hazards=True) as clean:
        values = torch.arange(8.0, device="cuda")
        there = torch.empty(8, pin_memory=True)
        there.copy_(values, non_blocking=True)
        done = torch.cuda.Event()
        done.record()
        done.synchronize()
        there.tolist()
    assert clean.hazards == []


def test_a_watch_says_what_it_saw() -> None:
    with SyncWatch(gpu=False) as watch:
        torch.ones(3, device="cuda").sum().item()
    assert repr(watch) == "<SyncWatch done: 1 syncs, shadow>"


def test_a_decorated_coroutine_and_generator_are_watched_to_their_end() -> None:
    def reads() -> float:
        return float(torch.ones(3, device="cuda").sum().item())

    @SyncWatch(gpu=False, max_syncs=0)
    async def awaited() -> None:
        reads()

    @SyncWatch(gpu=False, max_syncs=0)
    def generated() -> Iterator[float]:
        yield reads()

    with pytest.raises(SyncDisallowedError, match="waited 1 times"):
        asyncio.run(awaited())
    with pytest.raises(SyncDisallowedError, match="waited 1 times"):
        list(generated())


def test_a_generator_is_in_its_region_and_its_caller_is_not() -> None:
    @region("values")
    def values() -> Generator[float, str, str]:
        try:
            sent = yield float(torch.ones(3, device="cuda").sum().item())
        except KeyError:
            sent = "thrown"
        yield float(torch.ones(3, device="cuda").sum().item())
        return sent

    with SyncWatch(gpu=False) as watch:
        running = values()
        assert next(running) == 3
        torch.ones(3, device="cuda").sum().item()
        assert running.throw(KeyError()) == 3
        with pytest.raises(StopIteration, match="thrown"):
            next(running)
    assert [event.region for event in watch.events] == ["values", "", "values"]
