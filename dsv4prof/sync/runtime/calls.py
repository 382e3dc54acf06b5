"""The words between whoever sees a running program (a dispatch mode on a GPU, shadow tensors without one) and whoever
judges what was seen (the reasons of syncs, the hazards).

Nothing here needs torch when it is imported.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol

import msgspec

from dsv4prof.model.syncs import Direction, Kind

Place = Literal["device", "pinned", "pageable"]


class PlaceOf(Protocol):
    def __call__(self, tensor: Any, /) -> Place: ...


class OpCall(msgspec.Struct, frozen=True):
    """An aten operator as Python dispatches it, before it ran.

    `name` as in schemas ("aten::repeat_interleave"), `overload` ("Tensor"). `args` and `kwargs` hold what the program
    gave: tensors are real ones on a GPU and shadows without. Ask `place_of` where a tensor lies, never `tensor.device`.
    `places` is that function; it raises nothing and costs no sync. `stream` is the current stream's id, 0 the default.
    """

    name: str
    overload: str
    args: Sequence[Any]
    kwargs: Mapping[str, Any]
    places: PlaceOf
    stream: int = 0

    def place_of(self, tensor: Any) -> Place:
        return self.places(tensor)


class Reason(msgspec.Struct, frozen=True):
    """Why a call waits (or does what `kind` says): the form of the catalogue, and how often."""

    kind: Kind
    direction: Direction
    form: str
    code: str
    text: str
    times: int = 1


class DeviceListener(Protocol):
    """Hears what a program does with the device, in the order in which the host does it.

    Streams and events are named by integers (their addresses or counters); 0 is the default stream. A tensor's memory
    is the range of its storage; of a shadow that of the CPU tensor inside.
    """

    def op_begins(self, call: OpCall) -> None:
        """Before an operator runs: some of them end the program when what they were told is wrong."""

    def op(self, call: OpCall, result: Any) -> None:
        """After an operator ran (on a device: after it was launched)."""

    def event_recorded(self, event: int, stream: int) -> None: ...
    def stream_waits_event(self, stream: int, event: int) -> None: ...
    def stream_waits_stream(self, stream: int, other: int) -> None: ...
    def host_waits_event(self, event: int) -> None: ...
    def host_waits_stream(self, stream: int) -> None: ...
    def host_waits_device(self) -> None: ...
    def event_queried(self, event: int, done: bool) -> None: ...
    def raw_copy(self, target: int, source: int, nbytes: int, stream: int) -> None:
        """An asynchronous copy that torch does not know of; addresses of memory."""

    def host_reads(self, tensor: Any) -> None:
        """The program reads a host tensor's values outside of an operator (numpy, item, tolist, data_ptr)."""

    def freed(self, start: int, nbytes: int) -> None:
        """A storage was given back to its allocator."""
