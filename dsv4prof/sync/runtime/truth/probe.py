"""Whether a call waits, told from a kernel that is queued before it: the judgement, apart from any device."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Protocol

import msgspec

from dsv4prof.sync.measured import Case, Measurement

# A wait takes at least so much of the queued kernel; the rest is for clocks that differ.
_SHARE = 0.8
# A call that is so slow on its own needs a longer kernel before anything can be said.
_OWN_SHARE = 0.25


class DeviceLostError(Exception):
    """The device answers no more in this process."""


class Traced(msgspec.Struct, frozen=True):
    """What a profiler recorded of one call; fields as in Measurement."""

    runtime_sync: dict[str, int] = {}
    memcpy: dict[str, int] = {}
    cuda_sync: dict[str, int] = {}
    waited_ms: dict[str, float] = {}
    ops: list[str] = []


class Probe(Protocol):
    """A device to measure on."""

    sleep_ms: float
    """Length of the kernel that `occupy` queues, milliseconds."""

    def namespace(self, needs: str) -> dict[str, Any]:
        """Fresh names for a case."""

    def settle(self) -> None:
        """Wait until the device has nothing to do. Raises DeviceLostError."""

    def occupy(self, times: int) -> None:
        """Queue `times` kernels of `sleep_ms` on the current stream."""

    def done(self) -> bool:
        """Whether what `occupy` queued last has ended. Never waits."""

    def now_ms(self) -> float:
        """The host's clock, milliseconds."""

    def warnings_of(self, call: Callable[[], None]) -> int:
        """How often set_sync_debug_mode warned during `call`."""

    def traced(self, call: Callable[[], None]) -> Traced:
        """What the profiler saw of `call` behind a kernel of `sleep_ms`."""


class _Timed(msgspec.Struct, frozen=True):
    took_ms: float
    done: bool


def measure(case: Case, prelude: str, probe: Probe) -> Measurement:
    """Everything about one case. A case that raises is a row with `error`. Raises DeviceLostError."""
    try:
        found = _measured(_Runs(case, prelude, probe), probe)
    except DeviceLostError:
        raise
    except Exception as problem:  # noqa: BLE001  a case is any code at all, and the others still count
        found = {"error": f"{type(problem).__name__}: {str(problem).strip().splitlines()[0] if str(problem) else ''}"}
        _recover(probe)
    return Measurement(**{**msgspec.structs.asdict(case), **found})


def _recover(probe: Probe) -> None:
    """A case that failed half-way may have left work behind; a lost device says so here."""
    probe.settle()


class _Runs:
    """Runs of one case, each in names of its own."""

    def __init__(self, case: Case, prelude: str, probe: Probe) -> None:
        self._case, self._probe = case, probe
        self._prelude = compile(prelude, "<prelude>", "exec")
        self._setup = compile(case.setup, f"<setup of {case.id}>", "exec")
        self._call = compile(case.call, f"<{case.id}>", "exec")
        self._after = compile(case.after, f"<after {case.id}>", "exec")

    def run(self, how: Callable[[Callable[[], None]], object]) -> Any:
        """`how` is given the call of a case that has been set up, on a device that is idle."""
        names = self._probe.namespace(self._case.needs)
        exec(self._prelude, names)
        exec(self._setup, names)
        try:
            self._probe.settle()
            return how(lambda: exec(self._call, names))
        finally:
            self._probe.settle()
            exec(self._after, names)

    def timed(self, times: int) -> _Timed:
        """One run behind `times` kernels; none of them: how slow the call is on its own."""
        timed: _Timed = self.run(lambda call: self._clocked(call, times))
        return timed

    def _clocked(self, call: Callable[[], None], times: int) -> _Timed:
        probe = self._probe
        probe.occupy(times)
        start = probe.now_ms()
        call()
        took = probe.now_ms() - start
        return _Timed(took, probe.done())


def _measured(runs: _Runs, probe: Probe) -> dict[str, Any]:
    runs.timed(0)
    own_ms = runs.timed(0).took_ms
    times = 1 if own_ms < _OWN_SHARE * probe.sleep_ms else math.ceil(own_ms / (_OWN_SHARE * probe.sleep_ms))
    timed = [runs.timed(times), runs.timed(times)]
    verdicts = [_waited(one, times * probe.sleep_ms) for one in timed]
    if verdicts[0] != verdicts[1]:
        timed.append(runs.timed(times))
        verdicts.append(_waited(timed[-1], times * probe.sleep_ms))
    syncs = sum(verdicts) * 2 > len(verdicts)
    agreeing = [one.took_ms for one, verdict in zip(timed, verdicts, strict=True) if verdict == syncs]
    seen: Traced = runs.run(probe.traced)
    return {
        "syncs": syncs,
        "slow_ms": round(max(agreeing), 3),
        "warned": runs.run(probe.warnings_of),
        **msgspec.structs.asdict(seen),
        "note": _note(verdicts, times, own_ms),
    }


def _waited(timed: _Timed, queued_ms: float) -> bool:
    return timed.done and timed.took_ms >= _SHARE * queued_ms


def _note(verdicts: list[bool], times: int, own_ms: float) -> str:
    parts = []
    if len(verdicts) > 2:
        parts.append("runs disagreed, two of three count")
    if times > 1:
        parts.append(f"slow on its own ({own_ms:.1f} ms), so judged behind {times} kernels")
    return "; ".join(parts)
