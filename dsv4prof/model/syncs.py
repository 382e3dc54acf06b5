"""A host sync as it was caught while a program ran: the fact that every run-time layer, report and join speaks of."""

from __future__ import annotations

from enum import Enum
from typing import Literal

import msgspec

Direction = Literal["d2h", "h2d", "explicit", "alloc"]
Layer = Literal["warn", "explicit", "copies", "gpu_trace", "dispatch", "callbacks", "shadow"]


class Kind(str, Enum):
    """What is wrong with a call.

    SYNC waits for the device. SILENT waits and no warning of torch says so. RACE reads a non_blocking copy before its
    event. CONTRACT breaks a promise (an `output_size` that is not the sum). REDUNDANT reads a value again that the host
    has. SUSPECT may wait, by size or load (a pageable non_blocking upload, pinning in a hot path).
    """

    SYNC = "SYNC"
    SILENT = "SILENT"
    RACE = "RACE"
    CONTRACT = "CONTRACT"
    REDUNDANT = "REDUNDANT"
    SUSPECT = "SUSPECT"

    @property
    def waits(self) -> bool:
        """Whether the host certainly waits for the device."""
        return self in (Kind.SYNC, Kind.SILENT, Kind.REDUNDANT)


class Frame(msgspec.Struct, frozen=True):
    """One line of a Python stack."""

    file: str
    line: int
    function: str


class Observation(msgspec.Struct, frozen=True, kw_only=True):
    """What one layer saw of one call.

    `op` is the aten operator, Python function or runtime call that the layer knows; `form` the catalogue's, where it
    can tell. `times`: how often the call waits. `shapes` are those of the tensors given. `stack` is innermost first and
    free of frames of torch and of this package. `stream` is the stream's id, `start_ns` a monotonic clock;
    `blocked_ns` is None where nothing was measured.
    """

    layer: Layer
    kind: Kind
    direction: Direction
    op: str
    reason: str
    form: str = ""
    code: str = ""
    times: int = 1
    shapes: tuple[tuple[int, ...], ...] = ()
    stack: tuple[Frame, ...] = ()
    stream: int | None = None
    thread: int = 0
    start_ns: int = 0
    blocked_ns: int | None = None


class SyncEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One call that waited (or does what its kind says), from all layers that saw it.

    `layers` names them, `missing` those that were on and should have seen it: drift between a layer and this torch.
    `level` is what the region asked for that direction; `allowed_by` the reason of an allowance that covers it.
    """

    kind: Kind
    direction: Direction
    op: str
    reason: str
    form: str
    code: str
    times: int
    shapes: tuple[tuple[int, ...], ...]
    stack: tuple[Frame, ...]
    stream: int | None
    thread: int
    start_ns: int
    blocked_ns: int | None
    layers: tuple[Layer, ...]
    missing: tuple[Layer, ...] = ()
    region: str = ""
    step: int | None = None
    level: Literal["allow", "log", "disallow"] = "log"
    allowed_by: str = ""
