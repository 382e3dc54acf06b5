"""Operators as Python dispatches them, inside regions alone, with the reason why each waits.

A dispatch mode costs several times a small operator, so it is on where the program says `region`, never for a whole
step, and in the region's thread only. While a mode is on, torch takes every tensor for a subclass and does some things
another way: a backward of a product then looks for no zeros, `ctc_loss` refuses lengths on the host. So the mode is off
while these run, and the other layers tell of them.
"""

from __future__ import annotations

import contextlib
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from dsv4prof.model.syncs import Layer, Observation
from dsv4prof.sync.runtime.calls import OpCall, Place
from dsv4prof.sync.runtime.watch.hub import Hub, LayerMissingError
from dsv4prof.sync.runtime.watch.layers import backward
from dsv4prof.sync.runtime.watch.layers.copies import place_of
from dsv4prof.sync.runtime.watch.layers.patching import Patches
from dsv4prof.sync.runtime.watch.layers.reasoned import observed
from dsv4prof.sync.runtime.watch.redundant import Reads, redundant
from dsv4prof.sync.runtime.watch.scopes import Scope


class DispatchLayer:
    """See `hub.Hooked`; `region` is entered for each region of the program."""

    name: Layer = "dispatch"

    def __init__(self, hub: Hub, *, vendor: str = "cuda", listener: Any = None) -> None:
        self._hub, self._listener = hub, listener
        self._mode_type: Any = None
        self._patches = Patches()
        self._local = threading.local()
        self._lifts: tuple[Callable[[bool], None], bool] | None = None

    def start(self) -> None:
        try:
            from torch.utils._python_dispatch import TorchDispatchMode
        except ImportError:
            raise LayerMissingError("this torch has no dispatch modes", hint="leave out the layer dispatch") from None
        self._mode_type = _watching(TorchDispatchMode, self)
        self._show_uploads()
        backward.enter_with(self._aside)
        import torch

        self._patches.wrap(torch, "ctc_loss", self._unlooked)

    def stop(self) -> None:
        backward.no_more(self._aside)
        self._patches.undo()
        self._mode_type = None
        if self._lifts is not None:
            self._lifts[0](self._lifts[1])
            self._lifts = None

    def _show_uploads(self) -> None:
        """Have `torch.tensor(values, device=...)` dispatch its upload, where this torch can be told to."""
        import torch

        switch = getattr(torch._C, "_set_only_lift_cpu_tensors", None)
        asked = getattr(torch._C, "_only_lift_cpu_tensors", None)
        if switch is None or asked is None:
            return
        self._lifts = (switch, bool(asked()))
        switch(True)

    def rearm(self) -> None:
        return None

    @contextlib.contextmanager
    def region(self, scope: Scope) -> Iterator[None]:
        """One mode however many regions are nested: a second one would see every operator again."""
        if not scope.looked or getattr(self._local, "inside", False) or self._mode_type is None:
            yield
            return
        self._local.inside = True
        self._local.reads = Reads()
        try:
            with self._mode_type() as self._local.mode:
                yield
        finally:
            self._local.inside, self._local.mode = False, None

    @contextlib.contextmanager
    def _aside(self) -> Iterator[None]:
        """Without our mode, where it is the innermost of this thread."""
        mode, innermost = getattr(self._local, "mode", None), _innermost()
        if mode is None or innermost is not mode:
            yield
            return
        mode.__exit__(None, None, None)
        try:
            yield
        finally:
            mode.__enter__()

    def _unlooked(self, original: Any) -> Any:
        @functools.wraps(original)
        def runs(*args: Any, **kwargs: Any) -> Any:
            with self._aside():
                return original(*args, **kwargs)

        return runs

    def ran(self, func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Run an operator, and tell of it if it waits."""
        call = OpCall(func._schema.name, func._overloadname, args, kwargs, self._place_of)
        seen = observed("dispatch", call, by_line=True, stream=self._stream)
        if self._listener is not None:
            self._listener.op_begins(call)
        result = self._waited(seen, call, func) if seen else func(*args, **kwargs)
        if self._listener is not None:
            self._listener.op(call, result)
        return result

    def _waited(self, seen: list[Observation], call: OpCall, func: Any) -> Any:
        waits = [each for each in seen if each.kind.waits]
        for each in seen:
            if not each.kind.waits:
                self._hub.note(each)
        if not waits:
            return func(*call.args, **call.kwargs)
        first = waits[0]
        # A thread of autograd takes the mode of its caller over, and nothing else.
        reads: Reads | None = getattr(self._local, "reads", None)
        if first.direction == "d2h" and reads is not None and reads.again(call):
            first = redundant(first)
        begun = self._hub.begin([first, *waits[1:]])
        try:
            return func(*call.args, **call.kwargs)
        finally:
            self._hub.end(begun)

    def _place_of(self, tensor: Any) -> Place:
        return place_of(tensor)

    def _stream(self) -> int:
        import torch

        if not torch.cuda.is_initialized():
            return 0
        return int(torch.cuda.current_stream().cuda_stream)


def _innermost() -> Any:
    """The dispatch mode that sees operators first; None where there is none or this torch does not tell."""
    import torch.utils._python_dispatch as modes

    asked = getattr(modes, "_get_current_dispatch_mode", None)
    return asked() if asked is not None else None


def _watching(base: Any, layer: DispatchLayer) -> Any:
    """A mode that shows each operator to the layer; made here, because its base class needs torch."""

    class Watching(base):
        def __torch_dispatch__(self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None) -> Any:
            return layer.ran(func, args, kwargs or {})

    return Watching
