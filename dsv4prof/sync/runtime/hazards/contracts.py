"""Promises that a program makes to an operator and that nobody checks: the `output_size` of an expansion.

A wrong one leaves rows unwritten or ends in a fault that names nothing. With values at hand it is checked at once; on a
device the sum is computed behind what is queued, copied to pinned memory without a wait, and compared when it has
arrived. Where the program lets torch read the size back instead, the host's integers that stand nearby are compared
with it, so that `explain` can say which of them could take its place.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any, NamedTuple, Protocol

from dsv4prof.model.syncs import Frame
from dsv4prof.sync.runtime.calls import OpCall
from dsv4prof.sync.runtime.hazards.hazard import Hazard, Side
from dsv4prof.sync.runtime.hazards.log import Total
from dsv4prof.sync.runtime.hazards.sites import Marks, program_frame

_FRAMES_LOOKED_AT = 3
_MOST_NAMES = 80


class _Breach(NamedTuple):
    site: int
    mark: int
    given: int
    actual: int


class _Changed(NamedTuple):
    name: str
    number: int
    made: tuple[int, int]
    used: tuple[int, int]


class Sums(Protocol):
    """Brings sums of device tensors to the host without a wait."""

    def queue(self, tensor: Any, then: Callable[[int], None]) -> None:
        """Tell the sum of the tensor's values when it has arrived."""

    def collect(self) -> None:
        """Tell the sums that have arrived; never waits."""

    @property
    def missing(self) -> int:
        """Sums that have not arrived."""


class Contracts:
    """Told before and after every repeat_interleave."""

    def __init__(self, inner_of: Callable[[Any], Any]) -> None:
        self.inner_of = inner_of
        self._changed: dict[tuple[str, int, int], _Changed] = {}
        self._breaches: dict[int, _Breach] = {}
        self._seen: Counter[int] = Counter()
        self._calls: Counter[int] = Counter()
        self._equal: dict[int, Counter[str]] = {}
        self.checked = 0
        self.sums: Sums | None = None

    def before(self, call: OpCall, *, site: int, mark: int) -> None:
        given = call.kwargs.get("output_size")
        if not isinstance(given, int) or not call.args:
            return
        self.checked += 1
        repeats = call.args[0]

        def compare(actual: int) -> None:
            if actual != given:
                self._breaches.setdefault(site, _Breach(site, mark, given, actual))
                self._seen[site] += 1

        self.later(self.inner_of(repeats), compare)

    def later(self, tensor: Any, then: Callable[[int], None]) -> None:
        """Tell the sum of a tensor of integers: at once where it lies on the host, else when it has arrived."""
        if tensor.device.type == "cpu":
            then(_value_of_sum(tensor))
        elif self.sums is not None:
            self.sums.queue(tensor, then)

    def plan_differs(self, name: str, actual: Any, expected: int, *, at: tuple[int, int]) -> None:
        """Compare a plan's sum, as the device has it, with the host's; `at` is the place as (site, mark)."""

        def tell(total: int) -> None:
            if total != expected:
                self.plan_changed(name, 0, made=at, used=at)

        self.later(actual, tell)

    def plan_changed(self, name: str, number: int, *, made: tuple[int, int], used: tuple[int, int]) -> None:
        """Tensor `number` of a plan is not what it was; places as (site, mark)."""
        changed = _Changed(name, number, made, used)
        self._changed.setdefault((name, number, used[0]), changed)

    def after(self, call: OpCall, result: Any, *, site: int) -> None:
        """Of an expansion that read its size back: which integers of the program are that size."""
        if call.kwargs.get("output_size") is not None or not call.args or call.place_of(call.args[0]) != "device":
            return
        total = int(result.shape[0])
        self._calls[site] += 1
        names = {name for name, value in _integers(program_frame()) if value == total}
        known = self._equal.get(site)
        if known is None:
            self._equal[site] = Counter(names)
        else:
            known.update(names)

    def hazards(self, frames: Sequence[tuple[Frame, ...]], marks: Marks) -> list[Hazard]:
        if self.sums is not None:
            self.sums.collect()

        def side(op: str, does: str, at: tuple[int, int]) -> Side:
            mark = marks[at[1]]
            return Side(op=op, does=does, stream=None, stack=frames[at[0]], step=mark.step, region=mark.region)

        sizes = [
            Hazard(
                code="DSV201",
                trouble="output-size",
                second=side("aten::repeat_interleave", "reads", (breach.site, breach.mark)),
                seen=self._seen[breach.site],
                facts={"given": breach.given, "actual": breach.actual},
            )
            for breach in self._breaches.values()
        ]
        return sizes + [
            Hazard(
                code="DSV206",
                trouble="plan-changed",
                first=side("the plan's making", "writes", changed.made),
                second=side("its use", "reads", changed.used),
                facts={"plan": changed.name, "tensor": changed.number},
            )
            for changed in self._changed.values()
        ]

    def totals(self) -> list[Total]:
        return [Total(site, self._calls[site], dict(counts)) for site, counts in self._equal.items()]


def _value_of_sum(tensor: Any) -> int:
    """Of a tensor in host memory, unseen by the modes that watch the program."""
    from torch.utils._python_dispatch import _disable_current_modes

    with _disable_current_modes():
        return int(tensor.sum())


def _integers(frame: FrameType | None) -> Iterator[tuple[str, int]]:
    """Integers that the program has at hand: locals of the nearest functions, and fields of objects among them."""
    depth = 0
    while frame is not None and depth < _FRAMES_LOOKED_AT:
        where = frame.f_code.co_name
        for name, value in list(frame.f_locals.items())[:_MOST_NAMES]:
            if type(value) is int:
                yield f"{name} in {where}", value
            else:
                fields = getattr(value, "__dict__", None)
                if isinstance(fields, dict) and type(value).__module__ != "builtins":
                    items = list(fields.items())[:_MOST_NAMES]
                    yield from ((f"{name}.{key} in {where}", each) for key, each in items if type(each) is int)
        frame, depth = frame.f_back, depth + 1
