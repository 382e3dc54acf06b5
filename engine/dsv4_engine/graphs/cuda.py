"""Graphs on CUDA and HIP: `torch.cuda.CUDAGraph`, all in one memory pool."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from dsv4_engine.attention import tree

_WARM_UPS = 2


class CudaGraph:
    """`function` captured on a copy of `example`; its outputs stay where the capture put them.

    num_bytes: what the shared pool grew by, and the graph's own inputs.
    """

    def __init__(self, function: Callable[[Any], Any], example: Any, *, pool: Any, stream: torch.cuda.Stream) -> None:
        self._inputs = tree.clone(example)
        stream.wait_stream(torch.cuda.current_stream(stream.device))
        with torch.cuda.stream(stream):
            # Libraries allocate workspaces and pick kernels on first use, which a capture must not see.
            for _ in range(_WARM_UPS):
                function(self._inputs)
        # A capture returns unused memory to the device first, which would hide what it takes.
        torch.cuda.empty_cache()
        before = torch.cuda.memory_reserved(stream.device)
        self._graph = torch.cuda.CUDAGraph()
        # Other threads of a server may allocate meanwhile; only this one's calls belong to the capture.
        # dsv4prof: allow[DSV106] a capture waits for the device, once for each bucket
        capture = torch.cuda.graph(self._graph, pool=pool, stream=stream, capture_error_mode="thread_local")
        with _no_collection(), capture:
            self._outputs = function(self._inputs)
        reserved = torch.cuda.memory_reserved(stream.device) - before
        self.num_bytes = max(0, reserved) + sum(tensor.nbytes for tensor in tree.tensors(self._inputs).values())
        torch.cuda.current_stream(stream.device).wait_stream(stream)

    def replay(self, inputs: Any) -> Any:
        tree.copy_(self._inputs, inputs)
        self._graph.replay()
        return self._outputs


@contextmanager
def _no_collection() -> Iterator[None]:
    """No garbage collection within: one that frees another engine's graph or event calls the driver, which a capture
    does not survive (seen on an H200: "operation not permitted when stream is capturing")."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class CudaGraphMaker:
    """One pool for all graphs: they never run at the same time, so their buffers may overlap.

    One graph's outputs may lie where another has its intermediate values, so they must be used before any is replayed.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pool = torch.cuda.graph_pool_handle()
        self._stream = torch.cuda.Stream(device)

    def capture(self, function: Callable[[Any], Any], example: Any) -> CudaGraph:
        return CudaGraph(function, example, pool=self._pool, stream=self._stream)

    def free_bytes(self) -> int:
        """The device's, and what the allocator holds without use."""
        spare = torch.cuda.memory_reserved(self._device) - torch.cuda.memory_allocated(self._device)
        return int(torch.cuda.mem_get_info(self._device)[0]) + spare
