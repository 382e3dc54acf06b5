"""Calls that wait because the program says so: synchronize of a device, stream or event, freed caches, barriers.

Torch warns of few of them. They are wrapped where programs call them, so each is known before it waits and for how
long it did.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from dsv4prof.model.syncs import Direction, Kind, Layer, Observation
from dsv4prof.sync.runtime.watch.hub import Hub
from dsv4prof.sync.runtime.watch.layers import backward
from dsv4prof.sync.runtime.watch.layers.patching import Patches


class ExplicitLayer:
    """See `hub.Hooked`."""

    name: Layer = "explicit"

    def __init__(self, hub: Hub, *, vendor: str = "cuda", listener: Any = None) -> None:
        self._hub = hub
        self._patches = Patches()
        self._inside = threading.local()

    def start(self) -> None:
        import torch

        wait = functools.partial(self._waiting, "explicit")
        for owner, name, form in (
            (torch.cuda, "synchronize", "cuda-synchronize"),
            (getattr(torch, "accelerator", None), "synchronize", "cuda-synchronize"),
        ):
            self._patches.wrap(owner, name, wait(form, _named(owner, name)))
        for owner, form in ((torch.cuda.Stream, "stream-synchronize"), (torch.cuda.Event, "event-synchronize")):
            self._patches.wrap(owner, "synchronize", wait(form, _named(owner, "synchronize"), done=_is_done))
        self._wrap_plain_events(torch)
        free = functools.partial(self._waiting, "alloc")
        for owner in (torch.cuda, torch.cuda.memory, getattr(torch, "accelerator", None)):
            self._patches.wrap(owner, "empty_cache", free("empty-cache", "torch.cuda.empty_cache"))
        self._patches.wrap(torch.Tensor, "pin_memory", self._pinning)
        self._wrap_collectives(torch)
        backward.enter_with(self._lending)

    def stop(self) -> None:
        backward.no_more(self._lending)
        self._patches.undo()

    def rearm(self) -> None:
        return None

    def _wrap_plain_events(self, torch: Any) -> None:
        """`torch.Event` is written in C and cannot be changed: a subclass stands in for it, for events made from now
        on. An event is one of either for isinstance.
        """
        original: Any = getattr(torch, "Event", None)
        if not isinstance(original, type):
            return
        plain: Any = original
        waiting = self._waiting("explicit", "event-synchronize", "torch.Event.synchronize", done=_is_done)(
            plain.synchronize
        )

        class Either(type(original)):  # type: ignore[misc]
            def __instancecheck__(cls, instance: Any) -> bool:
                return isinstance(instance, original)

        self._patches.set(torch, "Event", Either("Event", (original,), {"synchronize": waiting, "__module__": "torch"}))

    def _wrap_collectives(self, torch: Any) -> None:
        distributed = torch.distributed
        if not distributed.is_available():
            return
        barrier = self._waiting("explicit", "dist-barrier", "torch.distributed.barrier", when=_on_device)
        for owner in (distributed, distributed.distributed_c10d):
            self._patches.wrap(owner, "barrier", barrier)

    def _waiting(
        self,
        direction: Direction,
        form: str,
        op: str,
        *,
        when: Callable[..., bool] | None = None,
        done: Callable[[Any], bool] | None = None,
    ) -> Callable[[Any], Any]:
        """What wraps a function that waits, at least where `when` says so of its arguments. `done` says whether there
        is nothing left to wait for, this time.
        """
        code = "DSV111" if direction == "alloc" else "DSV106"
        seen = Observation(
            layer="explicit", kind=_kind(form), direction=direction, op=op, reason=_REASONS[form], form=form, code=code
        )
        idle = msgspec.structs.replace(
            seen, kind=Kind.SUSPECT, reason=f"{seen.reason}; this time that was done, so it cost a call only"
        )

        def wrap(original: Any) -> Any:
            @functools.wraps(original)
            def waits(*args: Any, **kwargs: Any) -> Any:
                # torch.cuda.empty_cache may call torch.cuda.memory's: one call.
                if getattr(self._inside, "one", False) or (when is not None and not when(*args, **kwargs)):
                    return original(*args, **kwargs)
                call = self._hub.begin([idle if done is not None and done(args[0]) else seen])
                self._inside.one = True
                try:
                    return original(*args, **kwargs)
                finally:
                    self._inside.one = False
                    self._hub.end(call)

            return waits

        return wrap

    @contextlib.contextmanager
    def _lending(self) -> Iterator[None]:
        """Autograd works in threads of its own, whose waits the caller of backward waits for."""
        self._hub.lend()
        try:
            yield
        finally:
            self._hub.take_back()

    def _pinning(self, original: Any) -> Any:
        """Pinning stalls for milliseconds in the driver where the block is new; noted, not counted as a wait."""
        seen = Observation(
            layer="explicit",
            kind=Kind.SUSPECT,
            direction="alloc",
            op="Tensor.pin_memory",
            reason=_REASONS["pin-memory"],
            form="pin-memory",
            code="DSV111",
        )

        @functools.wraps(original)
        def pins(tensor: Any, *args: Any, **kwargs: Any) -> Any:
            if not tensor.is_cuda:
                self._hub.note(seen)
            return original(tensor, *args, **kwargs)

        return pins


_REASONS = {
    "cuda-synchronize": "waits for all work of the device",
    "stream-synchronize": "waits for all work of the stream",
    "event-synchronize": "waits for the work before the event",
    "empty-cache": "gives device memory back, and the driver waits for the device first",
    "dist-barrier": "a barrier of a device group waits for the stream",
    "pin-memory": "pins new memory, which stalls for milliseconds",
}


def _is_done(waited_for: Any) -> bool:
    """A question that costs a microsecond. A recorded event of a capture that goes on cannot be asked."""
    try:
        return bool(waited_for.query())
    except RuntimeError:
        return False


def _kind(form: str) -> Kind:
    """Torch warns of a stream's synchronize alone. Freeing waits where there was something to free: time tells."""
    if form == "empty-cache":
        return Kind.SUSPECT
    return Kind.SYNC if form == "stream-synchronize" else Kind.SILENT


def _named(owner: Any, name: str) -> str:
    if owner is None:
        return name
    module = owner.__name__ if not isinstance(owner, type) else f"torch.cuda.{owner.__name__}"
    return f"{module}.{name}"


def _on_device(group: Any = None, async_op: bool = False, *_: Any, **__: Any) -> bool:
    """A barrier that is asynchronous or of a group on the host waits for no device."""
    import torch.distributed as distributed

    if async_op or not distributed.is_initialized():
        return False
    return "nccl" in str(distributed.get_backend(group))
