"""The driver's callbacks, with libraries that behave like CUPTI and roctracer."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from dsv4prof.model.syncs import Kind, SyncEvent  # noqa: E402
from dsv4prof.sync.runtime.watch.hub import Hub, LayerMissingError  # noqa: E402
from dsv4prof.sync.runtime.watch.layers import cupti, roctracer  # noqa: E402
from dsv4prof.sync.runtime.watch.layers.callbacks import CallbacksLayer  # noqa: E402
from dsv4prof.sync.runtime.watch.layers.drivers import CopyParameters  # noqa: E402

RUNTIME, DRIVER = 2, 1
NUMBERS = {
    (RUNTIME, 131): b"cudaStreamSynchronize_v3020",
    (RUNTIME, 165): b"cudaDeviceSynchronize_v3020",
    (RUNTIME, 41): b"cudaMemcpyAsync_v3020",
    (RUNTIME, 31): b"cudaMemcpy_ptds_v7000",
    (RUNTIME, 13): b"cudaLaunchKernel_v7000",
    (DRIVER, 9): b"cuStreamSynchronize",
    (DRIVER, 277): b"cuMemcpyDtoH_v2",
}


class FakeCupti:
    """What is asked of libcupti. `call` behaves like a program that calls the runtime."""

    def __init__(self, *, taken: bool = False) -> None:
        self.taken = taken
        self.enabled: set[tuple[int, int]] = set()
        self.callback: Any = None

    def cuptiSubscribe(self, subscriber: Any, callback: Any, userdata: Any) -> int:
        if self.taken:
            return 39
        subscriber._obj.value = 7
        self.callback = callback
        return 0

    def cuptiUnsubscribe(self, subscriber: Any) -> int:
        assert subscriber.value == 7
        self.callback = None
        return 0

    def cuptiGetCallbackName(self, domain: Any, number: Any, name: Any) -> int:
        known = NUMBERS.get((domain.value, number.value))
        if known is None:
            return 1
        name._obj.value = known
        return 0

    def cuptiEnableCallback(self, on: Any, subscriber: Any, domain: Any, number: Any) -> int:
        self.enabled.add((domain.value, number.value))
        return 0

    def call(
        self, domain: int, number: int, *, parameters: Any = None, takes_s: float = 0.0, inner: Any = None
    ) -> None:
        address = ctypes.addressof(parameters) if parameters is not None else 0
        for site in (0, 1):
            data = cupti.CallbackData(site=site, parameters=address)
            if self.callback is not None and (domain, number) in self.enabled:
                self.callback(None, domain, number, ctypes.byref(data))
            if site == 0:
                if inner is not None:
                    inner()
                time.sleep(takes_s)


class Ear:
    """A watcher that keeps events."""

    def __init__(self) -> None:
        self.events: list[SyncEvent] = []

    def call_grew(self, call: Any, times: int, *, before: bool) -> None:
        assert not before

    def call_settled(self, call: Any, missing: Any) -> None:
        self.events.append(call.event(missing))

    def scope_begun(self, scope: Any) -> None: ...
    def unit_ended(self, scope: Any) -> None: ...
    def scope_ended(self, scope: Any) -> None: ...


def heard(driver: Any, program: Callable[[], None], *, listener: Any = None, launches: bool = False) -> list[SyncEvent]:
    hub, ear = Hub(), Ear()
    layer = CallbacksLayer(hub, driver=driver, listener=listener, launches=launches)
    hub.join(ear, [layer])
    try:
        program()
    finally:
        hub.leave(ear, ["callbacks"])
    return ear.events


def test_a_wait_is_one_event_with_its_time_and_line() -> None:
    library = FakeCupti()
    (event,) = heard(cupti.Cupti(library), lambda: library.call(RUNTIME, 131, takes_s=0.005))
    assert (event.op, event.kind, event.layers) == ("cudaStreamSynchronize", Kind.SYNC, ("callbacks",))
    assert event.blocked_ns is not None and event.blocked_ns >= 5_000_000
    assert event.stack[0].file == __file__
    assert library.callback is None


def test_the_driver_below_the_runtime_is_the_same_wait() -> None:
    library = FakeCupti()
    inner = lambda: library.call(DRIVER, 9)  # noqa: E731
    events = heard(cupti.Cupti(library), lambda: library.call(RUNTIME, 131, inner=inner))
    assert [event.op for event in events] == ["cudaStreamSynchronize"]
    assert [event.op for event in heard(cupti.Cupti(library), inner)] == ["cuStreamSynchronize"]


def test_a_launch_is_not_asked_for_and_a_short_copy_is_no_wait() -> None:
    library = FakeCupti()
    copy = CopyParameters(nbytes=64, kind=1)

    def program() -> None:
        library.call(RUNTIME, 13, takes_s=0.005)
        library.call(RUNTIME, 41, parameters=copy)

    assert heard(cupti.Cupti(library), program) == []
    assert (RUNTIME, 13) not in library.enabled


def test_a_copy_that_waits_and_the_wait_behind_it_are_one_call() -> None:
    library = FakeCupti()
    down, up = CopyParameters(nbytes=64, kind=2), CopyParameters(nbytes=64, kind=1)

    def torch_copies() -> None:
        for number, parameters in ((41, down), (131, None)):
            library.call(RUNTIME, number, parameters=parameters, takes_s=0.003)

    (event,) = heard(cupti.Cupti(library), torch_copies)
    assert (event.kind, event.direction, event.times) == (Kind.SYNC, "d2h", 1)
    assert event.blocked_ns is not None and event.blocked_ns >= 6_000_000
    (alone,) = heard(cupti.Cupti(library), lambda: library.call(RUNTIME, 41, parameters=up, takes_s=0.003))
    assert (alone.kind, alone.direction) == (Kind.SILENT, "h2d")
    (plain,) = heard(cupti.Cupti(library), lambda: library.call(RUNTIME, 31, parameters=up))
    assert (plain.op, plain.kind, plain.direction) == ("cudaMemcpy", Kind.SYNC, "h2d")
    (driver,) = heard(cupti.Cupti(library), lambda: library.call(DRIVER, 277))
    assert (driver.op, driver.direction) == ("cuMemcpyDtoH_v2", "d2h")


def test_a_thread_that_waits_has_no_line_of_python_and_is_heard() -> None:
    library = FakeCupti()

    def program() -> None:
        thread = threading.Thread(target=library.call, args=(RUNTIME, 165))
        thread.start()
        thread.join()

    (event,) = heard(cupti.Cupti(library), program)
    assert (event.form, event.direction, event.code) == ("cuda-synchronize", "explicit", "DSV106")
    assert event.thread != threading.get_ident()


def test_a_thread_of_c_has_no_thread_locals_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python makes and throws away a thread state at each callback there, so what is kept must not hang on it."""

    class Forgets:
        """A thread-local as such a thread finds it: always new."""

        def __setattr__(self, name: str, value: object) -> None: ...

    monkeypatch.setattr(threading, "local", Forgets)
    library = FakeCupti()
    (event,) = heard(cupti.Cupti(library), lambda: library.call(RUNTIME, 131, takes_s=0.002))
    assert event.blocked_ns is not None and event.blocked_ns >= 2_000_000


def test_a_launch_that_finds_the_queue_full_has_waited_and_a_slow_first_one_has_not() -> None:
    library = FakeCupti()

    def program(before: int) -> Callable[[], None]:
        def runs() -> None:
            for _ in range(before):
                library.call(RUNTIME, 13)
            library.call(RUNTIME, 13, takes_s=0.002)

        return runs

    full = heard(cupti.Cupti(library), program(1100), launches=True)[-1]
    assert (full.kind, full.op) == (Kind.SILENT, "cudaLaunchKernel")
    first = heard(cupti.Cupti(library), program(10), launches=True)
    assert {event.kind for event in first} == {Kind.SUSPECT}


def test_raw_copies_are_told_to_whoever_looks_for_hazards() -> None:
    told: list[tuple[int, int, int, int]] = []

    class Listener:
        def raw_copy_seen(self, target: int, source: int, nbytes: int, stream: int) -> None:
            told.append((target, source, nbytes, stream))

    library = FakeCupti()
    copy = CopyParameters(target=4096, source=8192, nbytes=64, kind=1, stream=5)
    heard(cupti.Cupti(library), lambda: library.call(RUNTIME, 41, parameters=copy), listener=Listener())
    assert told == [(4096, 8192, 64, 5)]


def test_a_second_subscriber_is_refused_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LayerMissingError, match="subscriber already"):
        heard(cupti.Cupti(FakeCupti(taken=True)), lambda: None)
    with torch.profiler.profile(), pytest.raises(LayerMissingError, match="profiler records"):
        heard(cupti.Cupti(FakeCupti()), lambda: None)


def test_a_library_that_is_absent_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> None:
        raise OSError(name)

    monkeypatch.setattr(ctypes, "CDLL", absent)
    with pytest.raises(LayerMissingError, match="libcupti is not there"):
        cupti.Cupti().start(["cudaMemcpy"], lambda *_: None)
    with pytest.raises(LayerMissingError, match="libroctracer64 is not there"):
        roctracer.Roctracer().start(["hipMemcpy"], lambda *_: None)


class FakeRoctracer:
    """What is asked of libroctracer64."""

    numbers = {b"hipMemcpyWithStream": 88, b"hipStreamSynchronize": 120}

    def __init__(self) -> None:
        self.callbacks: dict[int, Any] = {}

    def roctracer_op_code(self, domain: Any, name: bytes, number: Any, kind: Any) -> int:
        if domain.value != 3 or name not in self.numbers:
            return 1
        number._obj.value = self.numbers[name]
        return 0

    def roctracer_enable_op_callback(self, domain: Any, number: Any, callback: Any, argument: Any) -> int:
        self.callbacks[number.value] = callback
        return 0

    def roctracer_disable_op_callback(self, domain: Any, number: Any) -> int:
        del self.callbacks[number.value]
        return 0

    def call(self, number: int, copy: CopyParameters) -> None:
        class Whole(ctypes.Structure):
            _fields_ = (("data", roctracer.ApiData), ("arguments", CopyParameters))

        for phase in (0, 1):
            whole = Whole(data=roctracer.ApiData(phase=phase), arguments=copy)
            self.callbacks[number](3, number, ctypes.cast(ctypes.byref(whole), ctypes.POINTER(roctracer.ApiData)), None)
            time.sleep(0.001)


@pytest.fixture
def hip() -> Iterator[FakeRoctracer]:
    library = FakeRoctracer()
    yield library
    assert library.callbacks == {}


def test_one_hip_call_is_a_whole_blocking_copy(hip: FakeRoctracer) -> None:
    copy = CopyParameters(nbytes=8, kind=2)
    (event,) = heard(roctracer.Roctracer(hip), lambda: hip.call(88, copy))
    assert (event.op, event.kind, event.direction) == ("hipMemcpyWithStream", Kind.SYNC, "d2h")
