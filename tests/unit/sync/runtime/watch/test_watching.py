"""A watch on a fake device: what it lists, and when it objects."""

from __future__ import annotations

import _thread
import contextlib
import threading
import time
import warnings

import pytest

torch = pytest.importorskip("torch")

from dsv4prof.errors import LifetimeError, UsageError  # noqa: E402
from dsv4prof.model.syncs import Kind, Observation  # noqa: E402
from dsv4prof.sync.runtime.watch import (  # noqa: E402
    Allowance,
    SyncDisallowedError,
    SyncWatch,
    allow_syncs,
    region,
    scopes,
    step,
)
from dsv4prof.sync.runtime.watch.hub import the_hub  # noqa: E402
from fake_sync_mode import FakeDevice  # noqa: E402

HERE = __file__


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> FakeDevice:
    return FakeDevice(monkeypatch)


class Waited:
    """A stream or an event; `query` says whether all is done."""

    def __init__(self, *, done: bool = False) -> None:
        self._done = done

    def query(self) -> bool:
        return self._done


def test_a_warned_sync_is_listed_with_the_line_of_the_program(device: FakeDevice) -> None:
    with SyncWatch() as watch:
        device.waits()
    (event,) = watch.events
    assert event.kind is Kind.SYNC
    assert event.layers == ("warn",)
    assert any(frame.file == HERE and frame.function.startswith("test_a_warned") for frame in event.stack)
    assert watch.syncs == 1


def test_explicit_waits_are_timed_and_silent_because_torch_does_not_warn(device: FakeDevice) -> None:
    with SyncWatch() as watch:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
    first, second = watch.events
    assert (first.kind, first.direction, first.form, first.code) == (
        Kind.SILENT, "explicit", "cuda-synchronize", "DSV106",
    )  # fmt: skip
    assert first.blocked_ns is not None and first.blocked_ns >= 0
    assert (second.direction, second.code, second.kind) == ("alloc", "DSV111", Kind.SUSPECT)
    assert first.stack[0].file == HERE


def test_two_layers_that_see_one_call_make_one_event(device: FakeDevice) -> None:
    stream = Waited()
    with SyncWatch() as watch:
        torch.cuda.Stream.synchronize(stream)
    (event,) = watch.events
    assert event.layers == ("explicit", "warn")
    assert event.form == "stream-synchronize"
    assert event.missing == ()
    assert watch.syncs == 1


def test_a_layer_that_should_have_seen_a_call_is_named(device: FakeDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda.Stream, "synchronize", lambda stream: None)
    stream = Waited()
    with SyncWatch() as watch:
        torch.cuda.Stream.synchronize(stream)
    assert watch.events[0].missing == ("warn",)


def test_what_was_done_already_is_listed_and_not_counted(device: FakeDevice) -> None:
    with SyncWatch() as watch:
        torch.cuda.Event.synchronize(Waited(done=True))
        torch.cuda.Event.synchronize(Waited())
    assert [event.kind for event in watch.events] == [Kind.SUSPECT, Kind.SILENT]
    assert watch.syncs == 1


def test_an_emptied_cache_waited_if_it_took_long(device: FakeDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    with SyncWatch() as watch:
        torch.cuda.empty_cache()
    assert (watch.events[0].kind, watch.syncs) == (Kind.SUSPECT, 0)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: time.sleep(0.002))
    with SyncWatch() as watch:
        torch.cuda.empty_cache()
    assert (watch.events[0].kind, watch.syncs) == (Kind.SILENT, 1)


def test_threads_of_autograd_wait_for_whoever_called_backward(device: FakeDevice) -> None:
    seen = Observation(layer="gpu_trace", kind=Kind.SYNC, direction="d2h", op="", reason="waits")
    with SyncWatch() as watch, region("backward"):
        the_hub().lend()
        # Nothing but our own frames, as in a callback on a thread of C++.
        _thread.start_new_thread(list, (map(the_hub().note, [seen]),))
        time.sleep(0.05)
        the_hub().take_back()
        device.waits()
    assert [event.region for event in watch.events] == ["backward", "backward"]
    assert watch.events[0].stack[0].file == HERE


def test_backward_lends_its_place(device: FakeDevice) -> None:
    lent = []
    x = torch.ones(3, requires_grad=True)
    x.register_hook(lambda grad: lent.append(len(the_hub()._lent)))
    with SyncWatch():
        x.sum().backward()
    x.sum().backward()
    assert lent == [1, 0]


def test_a_loop_counts_every_turn(device: FakeDevice) -> None:
    with SyncWatch() as watch:
        for _ in range(200):
            device.waits()
    assert sum(event.times for event in watch.events) == watch.syncs == 200


def test_mode_filters_and_functions_come_back(device: FakeDevice) -> None:
    before = (
        warnings.filters[:], warnings._showwarnmsg, torch.cuda.synchronize, torch.Tensor.__dict__.get("to"),
        torch.Event, warnings.catch_warnings.__exit__,
    )  # fmt: skip
    with SyncWatch():
        assert device.mode == 1
        assert warnings.filters[0][0] == "always"
        assert torch.cuda.synchronize is not before[2]
    assert device.mode == 0
    assert before == (
        warnings.filters[:], warnings._showwarnmsg, torch.cuda.synchronize, torch.Tensor.__dict__.get("to"),
        torch.Event, warnings.catch_warnings.__exit__,
    )  # fmt: skip
    assert not scopes.watched()


def test_filters_and_modes_of_the_program_do_not_deafen_the_watch(device: FakeDevice) -> None:
    with SyncWatch() as watch:
        with warnings.catch_warnings(record=True):
            warnings.simplefilter("ignore")
            device.waits()
        with warnings.catch_warnings():
            warnings.resetwarnings()
            warnings.filterwarnings("ignore", category=UserWarning)
            device.waits()
        device.waits()
        torch.cuda.set_sync_debug_mode("default")
        assert torch.cuda.get_sync_debug_mode() == 0
        device.waits()
    assert watch.syncs == 4
    assert device.mode == 0


def test_what_the_program_set_meanwhile_is_kept_afterwards(device: FakeDevice) -> None:
    with SyncWatch():
        torch.cuda.set_sync_debug_mode("error")
        assert device.mode == 2
    assert device.mode == 2


def test_other_warnings_are_none_of_our_business(device: FakeDevice) -> None:
    with pytest.warns(UserWarning, match="something else"), SyncWatch() as watch:
        warnings.warn("something else", UserWarning, stacklevel=1)
    assert watch.syncs == 0


def test_disallowed_is_raised_at_the_call_where_the_layer_comes_before_it(device: FakeDevice) -> None:
    reached = []
    with pytest.raises(SyncDisallowedError, match="synchronize") as caught, SyncWatch(explicit="disallow"):
        torch.cuda.synchronize()
        reached.append(1)
    assert not reached
    assert caught.value.event is not None and caught.value.event.level == "disallow"


def test_a_broad_except_does_not_hide_it(device: FakeDevice) -> None:
    with pytest.raises(SyncDisallowedError), SyncWatch(explicit="disallow"), contextlib.suppress(Exception):
        torch.cuda.synchronize()


def test_disallowed_is_raised_at_the_end_where_the_layer_comes_after(device: FakeDevice) -> None:
    reached = []
    with pytest.raises(SyncDisallowedError), SyncWatch(d2h="disallow"):
        device.waits()
        reached.append(1)
    assert reached


def test_an_error_of_the_program_comes_first_and_tells_of_the_sync(device: FakeDevice) -> None:
    with pytest.raises(ZeroDivisionError) as caught, SyncWatch(d2h="disallow"):
        device.waits()
        1 / 0  # noqa: B018
    assert any("not allowed" in note for note in getattr(caught.value, "__notes__", ["not allowed"]))


def test_regions_change_levels_and_have_names_and_budgets(device: FakeDevice) -> None:
    with SyncWatch(d2h="disallow", strict=False) as watch, region("build", d2h="log"):
        device.waits()
        with region("inner", d2h="allow"):
            device.waits()
    assert [event.region for event in watch.events] == ["build", "build/inner"]
    assert [event.level for event in watch.events] == ["log", "allow"]
    assert watch.syncs == 1
    assert watch.problem() is None
    with (
        pytest.raises(SyncDisallowedError, match="region build waited 2 times, and 1 are allowed"),
        SyncWatch(),
        region("build", max_syncs=1),
    ):
        device.waits()
        device.waits()


def test_allowances_cover_so_many_calls_of_each_entry(device: FakeDevice) -> None:
    with SyncWatch() as watch:
        for _ in range(2):
            with allow_syncs("tokens decide what is next", times=1):
                device.waits()
                device.waits()
    assert [event.allowed_by for event in watch.events] == [
        "tokens decide what is next",
        "",
        "tokens decide what is next",
        "",
    ]
    assert watch.syncs == 2


def test_allowances_by_name_of_a_region(device: FakeDevice) -> None:
    allow = {"read": Allowance(reason="one wait a step", times=1)}
    with SyncWatch(allow=allow, max_syncs=0) as watch:
        for index in range(3):
            with step(index), region("phase"), region("read"):
                device.waits()
    assert {event.allowed_by for event in watch.events} == {"one wait a step"}
    assert (watch.syncs, watch.tally.allowed, watch.tally.steps) == (0, 3, 3)


def test_a_budget_is_that_of_a_step_after_warm_up(device: FakeDevice) -> None:
    watch = SyncWatch(max_syncs=1, warmup=2)
    with pytest.raises(SyncDisallowedError, match="step 2 waited 2 times, and 1 are allowed"), watch:
        for index in range(4):
            with step(index):
                device.waits()
                if index in (0, 2):
                    device.waits()
    assert watch.tally.warm == 3
    assert (watch.tally.units, watch.tally.most, watch.tally.over) == (2, 2, 1)
    assert {event.step for event in watch.events} == {0, 1, 2, 3}


def test_a_budget_without_steps_is_that_of_the_block(device: FakeDevice) -> None:
    with pytest.raises(SyncDisallowedError, match="the block waited 1 times"), SyncWatch(max_syncs=0):
        device.waits()


def test_a_thread_has_its_own_region_or_none(device: FakeDevice) -> None:
    def other() -> None:
        with region("loader"):
            device.waits()
        device.waits()

    with SyncWatch() as watch, region("main"):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        device.waits()
    assert sorted(event.region for event in watch.events) == ["", "loader", "main"]
    assert len({event.thread for event in watch.events}) == 2


def test_nested_watches_both_hear_and_the_inner_ends_alone(device: FakeDevice) -> None:
    with SyncWatch() as outer:
        with SyncWatch() as inner:
            device.waits()
        device.waits()
    assert (inner.syncs, outer.syncs) == (1, 2)


def test_as_a_decorator_each_call_is_a_block(device: FakeDevice) -> None:
    @SyncWatch(max_syncs=0)
    def clean() -> int:
        return 7

    @SyncWatch(max_syncs=0)
    def waits() -> None:
        device.waits()

    assert (clean(), clean()) == (7, 7)
    with pytest.raises(SyncDisallowedError):
        waits()


def test_the_events_that_are_kept_are_bounded_and_the_counts_are_not(device: FakeDevice) -> None:
    with SyncWatch(keep=10) as watch:
        for _ in range(50):
            device.waits()
    assert (len(watch.events), watch.left_out, watch.syncs) == (10, 40, 50)


def test_requests_that_make_no_sense(device: FakeDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="cannot be switched off"), SyncWatch(layers=("gpu_trace",)):
        pass
    with pytest.raises(UsageError, match="no layer"), SyncWatch(layers=("nvtx",)):  # type: ignore[arg-type]
        pass
    with pytest.raises(UsageError, match="no level"):
        SyncWatch(d2h="never")  # type: ignore[arg-type]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(UsageError, match="no GPU"), SyncWatch(gpu=True):
        pass
    with pytest.raises(UsageError, match="only the layer shadow"), SyncWatch(layers=("warn",)):
        pass
    watch = SyncWatch(layers=("shadow",), gpu=True)
    with pytest.raises(UsageError, match="stand in"):
        watch.__enter__()


def test_a_watch_is_used_once(device: FakeDevice) -> None:
    watch = SyncWatch()
    with watch:
        pass
    with pytest.raises(LifetimeError, match="new one"), watch:
        pass


def test_a_region_that_nobody_watches_can_be_compiled_whole() -> None:
    @region("build")
    def build(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    compiled = torch.compile(build, backend="eager", fullgraph=True)
    assert compiled(torch.ones(2)).tolist() == [2, 2]


def test_nothing_is_entered_where_nobody_watches() -> None:
    with region("build") as scope:
        assert scope is None
    assert scopes.current() is None


def test_no_call_is_lost_while_others_look(device: FakeDevice) -> None:
    """Threads wait while another asks again and again what was seen so far."""
    with SyncWatch(keep=100_000) as watch:
        waiting = [threading.Thread(target=lambda: [device.waits() for _ in range(300)]) for _ in range(4)]
        for thread in waiting:
            thread.start()
        while any(thread.is_alive() for thread in waiting):
            torch.cuda.synchronize()
            assert len(watch.events) >= 1
    warned = [event for event in watch.events if "warn" in event.layers]
    assert sum(event.times for event in warned) == 1200
