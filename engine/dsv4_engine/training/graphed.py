"""A training step as one CUDA graph: thousands of small kernels, launched by the host one by one, would take longer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from dsv4_engine.training.options import Stage

Update = Callable[[torch.Tensor, Stage], Mapping[str, torch.Tensor]]
_EAGER_STEPS = 3
"""Steps of a stage before it is captured: what is compiled, allocated or made at first use is there by then."""


class GraphedUpdate:
    """Makes the steps of `update` by replaying a graph of it, one graph a stage.

    `update` must read nothing from the device and depend on nothing but tensors that stay where they are.
    """

    def __init__(self, update: Update) -> None:
        self._update = update
        self._stage: Stage | None = None
        self._eager_left = _EAGER_STEPS
        self._graph: torch.cuda.CUDAGraph | None = None
        self._ids = torch.empty(0)
        self._figures: Mapping[str, torch.Tensor] = {}

    def __call__(self, ids: torch.Tensor, stage: Stage) -> Mapping[str, torch.Tensor]:
        """The figures are copies, good for as long as the caller keeps them."""
        if stage != self._stage:
            self._stage, self._eager_left, self._graph, self._figures = stage, _EAGER_STEPS, None, {}
        if self._eager_left:
            self._eager_left -= 1
            return self._on_a_side_stream(ids, stage)
        if self._graph is None:
            self._capture(ids, stage)
        assert self._graph is not None
        self._ids.copy_(ids)
        self._graph.replay()
        return {name: value.clone() for name, value in self._figures.items()}

    def _on_a_side_stream(self, ids: torch.Tensor, stage: Stage) -> Mapping[str, torch.Tensor]:
        # Where capturing happens too: gradients are accumulated on the stream that first made them.
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            figures = self._update(ids, stage)
        torch.cuda.current_stream().wait_stream(stream)
        return figures

    def _capture(self, ids: torch.Tensor, stage: Stage) -> None:
        """Capturing computes nothing: the step itself is the first replay."""
        self._ids = ids.clone()
        graph = torch.cuda.CUDAGraph()
        # dsv4prof: allow[DSV106] once a stage of the training
        with torch.cuda.graph(graph):
            self._figures = self._update(self._ids, stage)
        self._graph = graph


def set_number(group: dict[str, Any], name: str, value: float) -> None:
    """Set an optimiser's number, in place where it is a tensor that a graph may have captured."""
    if isinstance(group[name], torch.Tensor):
        group[name].fill_(value)
    else:
        group[name] = value
