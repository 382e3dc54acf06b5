"""Copies that ask not to block and block all the same, which no warning of torch tells.

Into pageable or strided memory a non_blocking copy waits; from pageable memory it may, by size. Only calls with
`non_blocking` are looked at, so others pay for one test.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

from dsv4prof.model.syncs import Kind, Layer
from dsv4prof.sync.runtime.calls import OpCall, Place
from dsv4prof.sync.runtime.watch.hub import Hub
from dsv4prof.sync.runtime.watch.layers.patching import Patches
from dsv4prof.sync.runtime.watch.layers.reasoned import observed


class CopiesLayer:
    """See `hub.Hooked`."""

    name: Layer = "copies"

    def __init__(self, hub: Hub, *, vendor: str = "cuda", listener: Any = None) -> None:
        self._hub = hub
        self._patches = Patches()

    def start(self) -> None:
        import torch

        tensor = torch.Tensor
        self._patches.wrap(tensor, "copy_", functools.partial(self._asking, at=1, copied=_into))
        self._patches.wrap(tensor, "to", functools.partial(self._asking, at=None, copied=_moved))
        self._patches.wrap(tensor, "cuda", functools.partial(self._asking, at=1, copied=_to_device))

    def stop(self) -> None:
        self._patches.undo()
        _pinned.clear()

    def rearm(self) -> None:
        return None

    def _asking(
        self, original: Any, *, at: int | None, copied: Callable[[Any, Any, Any], OpCall | None]
    ) -> Callable[..., Any]:
        """`at`: where `non_blocking` stands among the arguments; None: anywhere, as a bool."""

        @functools.wraps(original)
        def copies(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            # Most calls: one test, for there are hundreds in a step. By position non_blocking is never the first.
            if len(args) < 2:
                if not kwargs:
                    return original(tensor, *args)
                if not kwargs.get("non_blocking"):
                    return original(tensor, *args, **kwargs)
            if not (kwargs.get("non_blocking") or _among(args, at)):
                return original(tensor, *args, **kwargs)
            call = copied(tensor, args, kwargs)
            seen = [] if call is None else observed("copies", call, only=(Kind.SILENT, Kind.SUSPECT, Kind.RACE))
            if not seen:
                return original(tensor, *args, **kwargs)
            begun = self._hub.begin(seen)
            try:
                return original(tensor, *args, **kwargs)
            finally:
                self._hub.end(begun)

        return copies


def _among(args: tuple[Any, ...], at: int | None) -> bool:
    if at is not None:
        return len(args) > at and args[at] is True
    # to(device, dtype, non_blocking, copy) and to(dtype, non_blocking, copy): the first bool is it.
    return next((each for each in args if isinstance(each, bool)), False)


# Addresses that were pinned when the driver was asked last. Torch keeps pinned memory, and a step uses the same again.
_pinned: set[int] = set()
_asked = itertools.count(1)
_ASK_AGAIN = 512


def _known_pinned(tensor: Any) -> bool:
    """Whether a host tensor is pinned; the driver is asked once for an address, and again now and then."""
    try:
        address = tensor.data_ptr()
    except RuntimeError:
        # A tensor without memory of its own, as compilers use them.
        return bool(tensor.is_pinned())
    if next(_asked) % _ASK_AGAIN == 0:
        _pinned.clear()
    if address in _pinned:
        return True
    if not tensor.is_pinned():
        return False
    _pinned.add(address)
    return True


def place_of(tensor: Any) -> Place:
    """Where a real tensor lies; asking whether host memory is pinned costs a microsecond and no wait."""
    if tensor.device.type != "cpu":
        return "device"
    return "pinned" if tensor.is_pinned() else "pageable"


def _into(target: Any, args: Any, kwargs: Any) -> OpCall | None:
    source = args[0] if args else kwargs.get("src", kwargs.get("other"))
    if getattr(source, "device", None) is None or source.device.type == target.device.type:
        return None
    host = target if target.device.type == "cpu" else source
    if target.is_contiguous() and source.is_contiguous() and target.dtype == source.dtype and _known_pinned(host):
        # As it should be, and most are.
        return None
    return OpCall("aten::copy_", "", (target, source, True), {}, place_of)


def _moved(tensor: Any, args: Any, kwargs: Any) -> OpCall | None:
    import torch

    wanted = kwargs.get("device", kwargs.get("other"))
    for each in args:
        if isinstance(each, torch.device | str | torch.Tensor):
            wanted = each
    if isinstance(wanted, torch.Tensor):
        wanted = wanted.device
    if wanted is None or isinstance(wanted, int):
        return None if wanted is None else _copy_to(tensor, torch.device("cuda", wanted))
    return _copy_to(tensor, torch.device(wanted))


def _to_device(tensor: Any, args: Any, kwargs: Any) -> OpCall | None:
    import torch

    return _copy_to(tensor, torch.device("cuda"))


def _copy_to(tensor: Any, device: Any) -> OpCall | None:
    if device.type == tensor.device.type:
        return None
    if tensor.device.type == "cpu" and tensor.is_contiguous() and _known_pinned(tensor):
        return None
    return OpCall("aten::_to_copy", "", (tensor,), {"device": device, "non_blocking": True}, place_of)
