"""What a captured graph is, on any device: a function bound to buffers of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from dsv4_engine.phase import Phase


class Program(Protocol):
    """A phase as a function of tensors alone, which may be captured.

    `width` rows a request. `example` makes inputs of so many padding requests, for the capture; a call takes inputs of
    that form. Inputs and outputs are trees (`attention.tree`). A call must read nothing on the host, and whatever
    differs from step to step has to be a tensor of its inputs.
    """

    @property
    def phase(self) -> Phase: ...

    @property
    def width(self) -> int: ...

    def example(self, requests: int) -> Any: ...

    def __call__(self, inputs: Any) -> Any: ...


class CapturedGraph(Protocol):
    """One program at one bucket. num_bytes: device memory that the capture took."""

    @property
    def num_bytes(self) -> int: ...

    def replay(self, inputs: Any) -> Any:
        """Copy `inputs` into the graph's buffers and run; the outputs are valid until any graph's next replay."""
        ...


class GraphMaker(Protocol):
    """Captures programs on one kind of device."""

    def capture(self, function: Callable[[Any], Any], example: Any) -> CapturedGraph: ...

    def free_bytes(self) -> int | None:
        """Bytes free on the device; None where nobody counts."""
        ...
