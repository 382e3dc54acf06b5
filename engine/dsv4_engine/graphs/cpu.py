"""Graphs on a CPU: the same Python on static buffers, so that everything but speed is as with a captured graph.

A device graph reads its own input buffers and writes its own output buffers, and holds every host value of the capture
for good. So does this: a tensor that was not copied in, a host value that leaked into the function, and an output that
is used after the next replay all give wrong results here too, where a test can see it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dsv4_engine.attention import tree

_POISON = 1 << 30


class CpuGraph:
    """`function` bound to a copy of `example`. With `poison` all buffers are overwritten before each replay.

    num_bytes: of its input and output buffers; what the function allocates while it runs is freed again on a CPU.
    """

    def __init__(self, function: Callable[[Any], Any], example: Any, *, poison: bool) -> None:
        self._function, self._poison = function, poison
        self._inputs = tree.clone(example)
        self._outputs = tree.clone(function(self._inputs))
        held = (*tree.tensors(self._inputs).values(), *tree.tensors(self._outputs).values())
        self.num_bytes = sum(tensor.nbytes for tensor in held)

    def replay(self, inputs: Any) -> Any:
        if self._poison:
            tree.fill_(self._inputs, _POISON)
            tree.fill_(self._outputs, _POISON)
        tree.copy_(self._inputs, inputs)
        tree.copy_(self._outputs, self._function(self._inputs))
        return self._outputs


class CpuGraphMaker:
    def __init__(self, *, poison: bool = False) -> None:
        self._poison = poison

    def capture(self, function: Callable[[Any], Any], example: Any) -> CpuGraph:
        return CpuGraph(function, example, poison=self._poison)

    def free_bytes(self) -> None:
        return None
