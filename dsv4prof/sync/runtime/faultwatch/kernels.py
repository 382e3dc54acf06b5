"""What no dispatcher shows: Triton launches and graph replays, with the memory that the caller hands over.

Both are Python methods that are wrapped while a watch is open. Kernels launched by other libraries' own C++ stay
unseen, and the report says so.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from itertools import count, repeat
from typing import Any

from dsv4prof.faultrecord.layout import Cell, Kind
from dsv4prof.faultrecord.ring import RingWriter
from dsv4prof.sync.runtime.faultwatch.operators import LaunchNotes, LaunchState

_ID = "_dsv4prof_graph_id"


@contextmanager
def watched_kernels(ring: RingWriter, notes: LaunchNotes, state: LaunchState) -> Iterator[list[str]]:
    """While in the block, Triton launches and graphs are noted. Yields what could not be watched, in words."""
    unseen: list[str] = []
    with ExitStack() as stack:
        graphs = _graph_type()
        if graphs is None:
            unseen.append("graph replays: this torch has no CUDAGraph of the known form")
        else:
            stack.enter_context(_graphs(graphs, ring, notes, state))
        run = _triton_run()
        if run is not None:
            stack.enter_context(_triton(run, ring, notes))
        elif "triton" in sys.modules:
            unseen.append("Triton launches: this Triton has no JITFunction.run")
        yield unseen


def _graph_type() -> Any:
    import torch

    graph = getattr(getattr(torch, "cuda", None), "CUDAGraph", None)
    return graph if graph is not None and all(hasattr(graph, name) for name in ("capture_begin", "replay")) else None


def _triton_run() -> Any:
    """Triton's class of kernels, where Triton is installed and has the known form."""
    try:
        kernels = import_module("triton.runtime.jit")
    except (ImportError, RuntimeError):
        return None
    kind = getattr(kernels, "JITFunction", None)
    return kind if callable(getattr(kind, "run", None)) else None


@contextmanager
def _replaced(owner: Any, name: str, make: Callable[[Any], Any]) -> Iterator[None]:
    own = name in vars(owner)
    before = getattr(owner, name)
    setattr(owner, name, make(before))
    try:
        yield
    finally:
        if own:
            setattr(owner, name, before)
        else:
            delattr(owner, name)


@contextmanager
def _graphs(graph_type: Any, ring: RingWriter, notes: LaunchNotes, state: LaunchState) -> Iterator[None]:
    numbers = count(1)

    def begin(original: Any) -> Any:
        def capture_begin(self: Any, *args: Any, **keywords: Any) -> Any:
            notes.progress.pause(True)
            try:
                result = original(self, *args, **keywords)
            except BaseException:
                notes.progress.pause(False)
                raise
            number = next(numbers)
            setattr(self, _ID, number)
            state.graph = number
            ring.cell(Cell.CAPTURING, number)
            return result

        return capture_begin

    def end(original: Any) -> Any:
        def capture_end(self: Any, *args: Any, **keywords: Any) -> Any:
            state.graph = 0
            ring.cell(Cell.CAPTURING, 0)
            try:
                return original(self, *args, **keywords)
            finally:
                notes.progress.pause(False)

        return capture_end

    def replay(original: Any) -> Any:
        def replayed(self: Any, *args: Any, **keywords: Any) -> Any:
            graph = getattr(self, _ID, 0)
            name = ring.name(f"#{graph}" if graph else "captured before the watch")
            number, stream = notes.note(Kind.GRAPH, (), (), (), kernel=name, graph=graph, on_device=True)
            result = original(self, *args, **keywords)
            notes.back(number, stream, 0, None, mark=True)
            return result

        return replayed

    with (
        _replaced(graph_type, "capture_begin", begin),
        _replaced(graph_type, "capture_end", end),
        _replaced(graph_type, "replay", replay),
    ):
        yield


@contextmanager
def _triton(jit_function: Any, ring: RingWriter, notes: LaunchNotes) -> Iterator[None]:
    def run(original: Any) -> Any:
        def launched(self: Any, *args: Any, **keywords: Any) -> Any:
            if keywords.get("warmup"):
                return original(self, *args, **keywords)
            names = getattr(self, "arg_names", None) or [str(place) for place in range(len(args))]
            # Whether a kernel writes through a pointer is not known from outside.
            known = (*names[: len(args)], *keywords)
            values = (*args, *keywords.values())
            kernel = ring.name(getattr(getattr(self, "fn", None), "__name__", "") or "a Triton kernel")
            number, stream = notes.note(Kind.KERNEL, known, repeat(0), values, kernel=kernel, on_device=True)
            result = original(self, *args, **keywords)
            notes.back(number, stream, 0, None)
            return result

        return launched

    with _replaced(jit_function, "run", run):
        yield
