"""Plans that change between their making and their use: sums of their bytes, taken on the device, compared later.

A plan is built early and replayed late, so whoever writes its tensors in between (a buffer reused, a race, a stale
mirror) shows only as wrong addresses. `guard_plan` and `check_plan` are for the code that builds and replays; without
a watch they do nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

from dsv4prof.sync.runtime.hazards.contracts import Contracts


class Here(Protocol):
    """Who knows where in the program it is."""

    def place(self) -> tuple[int, int]:
        """The stack's number and that of step and region."""


class PlanGuard:
    """Sums by name of the plan, the last of each name, and where they were taken."""

    def __init__(self, contracts: Contracts, here: Here) -> None:
        self._contracts, self._here = contracts, here
        self._sums: dict[str, tuple[list[Any], tuple[int, int]]] = {}

    def guard(self, name: str, tensors: Sequence[Any]) -> None:
        self._sums[name] = ([_sum_of(self._contracts.inner_of(tensor)) for tensor in tensors], self._here.place())

    def check(self, name: str, tensors: Sequence[Any]) -> None:
        """Compare with what was guarded; an unknown name was made before the watch began."""
        known = self._sums.get(name)
        if known is None or len(known[0]) != len(tensors):
            return
        sums, made = known
        used = self._here.place()
        for number, (before, tensor) in enumerate(zip(sums, tensors, strict=True)):
            after = _sum_of(self._contracts.inner_of(tensor))
            self._contracts.later(after - before, self._telling(name, number, made, used))

    def _telling(self, name: str, number: int, made: tuple[int, int], used: tuple[int, int]) -> Callable[[int], None]:
        def tell(difference: int) -> None:
            if difference:
                self._contracts.plan_changed(name, number, made=made, used=used)

        return tell


_guards: list[PlanGuard] = []


@contextmanager
def watched_by(contracts: Contracts, here: Here) -> Iterator[None]:
    """`guard_plan` and `check_plan` tell these, inside."""
    _guards.append(PlanGuard(contracts, here))
    try:
        yield
    finally:
        _guards.pop()


def guard_plan(name: str, tensors: Sequence[Any] | Mapping[str, Any]) -> None:
    """The plan of this name has been built. Queues a few small kernels on the current stream; waits for nothing."""
    for guard in _guards[-1:]:
        guard.guard(name, _listed(tensors))


def check_plan(name: str, tensors: Sequence[Any] | Mapping[str, Any]) -> None:
    """The plan is about to be used, and must be as it was built: DSV206 where it is not."""
    for guard in _guards[-1:]:
        guard.check(name, _listed(tensors))


def _listed(tensors: Sequence[Any] | Mapping[str, Any]) -> list[Any]:
    return list(tensors.values()) if isinstance(tensors, Mapping) else list(tensors)


def _sum_of(tensor: Any) -> Any:
    """() int64 where the tensor lies: its bytes weighted by place, so that swapped values count too."""
    import torch
    from torch.utils._python_dispatch import _disable_current_modes

    with _disable_current_modes(), torch.no_grad():
        flat = tensor.detach().contiguous().view(-1)
        flat = flat.to(torch.uint8) if flat.dtype is torch.bool else flat.view(torch.uint8)
        weights = torch.arange(1, flat.numel() + 1, device=flat.device) % 65521
        return (flat.to(torch.int64) * weights).sum()
