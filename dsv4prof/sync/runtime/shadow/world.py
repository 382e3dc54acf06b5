"""What a shadow device knows and does, apart from torch's dispatch: judge calls, tell who listens, keep time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
import torch

from dsv4prof.model.syncs import Kind, Observation
from dsv4prof.sync.runtime.calls import DeviceListener, OpCall, Place, Reason
from dsv4prof.sync.runtime.reasons import PendingUploads, reasons_of, refined
from dsv4prof.sync.runtime.shadow.memory import Memory
from dsv4prof.sync.runtime.shadow.stacks import stack
from dsv4prof.sync.runtime.shadow.tensor import ShadowTensor
from dsv4prof.sync.runtime.shadow.timeline import Timeline

_STAGED = frozenset({"upload-nonblocking-pageable", "upload-nonblocking-strided-pinned"})
# A device runs these in a few kernels of its own, whatever they are composed of on the host.
_ONE_KERNEL = frozenset({"lstm", "gru", "rnn_tanh", "rnn_relu"})
_FULL = Reason(
    kind=Kind.SILENT,
    direction="explicit",
    form="",
    code="DSV106",
    text="the launch queue is full: the host waits until the device has taken up earlier work",
)


class _Thread(threading.local):
    """What belongs to a thread: its stream, its device, the outermost torch function, what its last wait was about, and
    whether it is unseen.
    """

    stream = 0
    device = 0
    function = ""
    indexed_by_device = False
    unseen = 0
    graph: Any = None
    tensors: Sequence[Any] = ()


class World:
    """`sink` hears of what waits, `listener` of all that happens on the device."""

    def __init__(
        self,
        *,
        sink: Callable[[Observation], None],
        listener: DeviceListener | None,
        guarded: bool,
        torch_version: str | None = None,
    ) -> None:
        self._sink, self.listener, self.guarded = sink, listener, guarded
        self._version = torch_version
        self.memory = Memory(self._freed)
        self.timeline = Timeline()
        self.pending = PendingUploads()
        self.here = _Thread()
        self.mode: Any = None

    def wrap(self, inner: torch.Tensor, index: int | None = None) -> ShadowTensor:
        """A host tensor as one on a device."""
        index = self.here.device if index is None else index
        if inner.is_nested and inner.layout is torch.strided:
            message = "a shadow device has nested tensors of layout torch.jagged only"
            raise NotImplementedError(f"{message}: say layout=torch.jagged")
        # dsv4prof: allow[DSV107] a flag of the tensor, which lies on the host
        if inner._is_zerotensor():
            # Forward derivatives start as zeros without memory.
            inner = inner.clone()
        self.memory.watch(inner, on_device=True)
        return ShadowTensor(inner, torch.device("cuda", index), guarded=self.guarded)

    def place_of(self, tensor: Any) -> Place:
        if isinstance(tensor, ShadowTensor):
            return "device"
        if isinstance(tensor, torch.Tensor) and self.memory.is_pinned(tensor):
            return "pinned"
        return "pageable"

    def call(self, name: str, overload: str, args: Sequence[Any], kwargs: dict[str, Any]) -> OpCall:
        return OpCall(name, overload, args, kwargs, self.place_of, self.here.stream)

    def judge(self, call: OpCall) -> bool:
        """Before an operator runs: say why it waits. Returns whether it does."""
        if self.here.unseen:
            return False
        waits = False
        for reason in reasons_of(call, torch_version=self._version):
            waits |= self._told(self._behind_the_queue(reason, call), call.name, _tensors(call.args))
        return waits

    def begins(self, call: OpCall) -> None:
        """Right before an operator runs, which may raise."""
        if self.listener is not None and not self.here.unseen and self.here.graph is None:
            self.listener.op_begins(call)

    def launched(self, call: OpCall, result: Any) -> None:
        """After an operator that puts work on the current stream."""
        if self.here.unseen:
            return
        self.timeline.launch(self.here.stream)
        if self.here.function in _ONE_KERNEL:
            return
        if self.pending.launches() and self.timeline.occupied:
            self._told(_FULL, call.name, ())

    def ran(self, call: OpCall, result: Any) -> None:
        """After any operator; one that is captured is told at each replay, and touches nothing now."""
        if self.listener is not None and not self.here.unseen and self.here.graph is None:
            self.listener.op(call, result)

    def noted(self, reason: Reason, op: str, tensors: Sequence[Any], *, inside: bool = False) -> None:
        """A wait that no operator shows. inside: it happens within one that the program called."""
        if self.here.unseen <= inside and self._told(reason, op, tensors):
            self.waited_for_stream(self.here.stream)

    def host_reads(self, tensor: Any) -> None:
        if self.listener is not None and not self.here.unseen:
            self.listener.host_reads(tensor)

    def recorded_stream(self, tensor: Any, stream: Any) -> None:
        """As an operator of its own, which C++ would refuse for a stream of ours."""
        self.ran(self.call("aten::record_stream", "", (tensor, stream), {}), None)

    def waited_for_stream(self, stream: int) -> None:
        self.timeline.wait_stream(stream)
        self.pending.waited()
        if self.listener is not None and not self.here.unseen:
            self.listener.host_waits_stream(stream)

    @contextmanager
    def unseen(self) -> Iterator[None]:
        """What this thread does in the block is not the program's."""
        self.here.unseen += 1
        try:
            yield
        finally:
            self.here.unseen -= 1

    def _told(self, reason: Reason, op: str, tensors: Sequence[Any]) -> bool:
        """Returns whether the host waits for the current stream."""
        here = self.here
        reason = refined(reason, here.function, device_index=here.indexed_by_device)
        here.tensors = tensors
        if here.graph is not None and reason.kind.waits:
            raise RuntimeError(f"operation not permitted when stream is capturing: {op}: {reason.text}")
        waits = reason.kind.waits and reason.direction in ("d2h", "h2d")
        if waits and self.timeline.is_idle(here.stream):
            text = f"{reason.text}; the stream had nothing to do, so this costs a call only"
            reason = msgspec.structs.replace(reason, kind=Kind.SUSPECT, text=text)
        self._sink(
            Observation(
                layer="shadow",
                kind=reason.kind,
                direction=reason.direction,
                op=_outermost(here.function) or op,
                reason=reason.text,
                form=reason.form,
                code=reason.code,
                times=reason.times,
                shapes=tuple(tuple(one.shape) for one in tensors),
                stack=stack(),
                stream=here.stream,
                thread=threading.get_native_id(),
                start_ns=time.monotonic_ns(),
            )
        )
        return waits

    def _behind_the_queue(self, reason: Reason, call: OpCall) -> Reason:
        """A staged upload waits where too many are pending behind a device that is busy."""
        if reason.kind is not Kind.SUSPECT or reason.form not in _STAGED:
            return reason
        sources = [one for one in _tensors(call.args) if not isinstance(one, ShadowTensor)]
        nbytes = sources[0].numel() * sources[0].element_size() if sources else 0
        if not self.pending.uploads(nbytes) or not self.timeline.occupied:
            return reason
        text = "too many uploads of pageable memory are pending, so this one waits for the first"
        return msgspec.structs.replace(reason, kind=Kind.SILENT, text=text)

    def _freed(self, start: int, nbytes: int) -> None:
        if self.listener is not None and nbytes:
            self.listener.freed(start, nbytes)


def _tensors(args: Sequence[Any]) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    for one in args:
        if isinstance(one, torch.Tensor):
            found.append(one)
        elif isinstance(one, (list, tuple)):
            found.extend(part for part in one if isinstance(part, torch.Tensor))
    return found


def _outermost(function: str) -> str:
    """`aten::topk` for a function of torch that is an operator; Tensor's own methods as `Tensor.__getitem__`."""
    if not function:
        return ""
    if function.startswith("__"):
        return f"Tensor.{function}"
    return f"aten::{function}" if hasattr(torch.ops.aten, function) else f"torch.{function}"
