"""Training with the weights that a quantised checkpoint will hold (quantisation-aware, straight through)."""

from __future__ import annotations

import torch

from dsv4_engine.checkpoint.layout import TensorSpec, tensor_specs
from dsv4_engine.checkpoint.quantize import fake_quantise
from dsv4_engine.training.model import TrainableModel
from dsv4_engine.training.names import official_name


class QuantisedWeights:
    """Inside of the context every quantised matrix is what fp8 or mxfp4 makes of it; outside it is itself again.

    Gradients that are taken inside go to the exact weights unchanged.
    """

    def __init__(self, model: TrainableModel) -> None:
        specs = tensor_specs(model.config)
        self._block = model.config.weight_block_size
        groups: dict[tuple[torch.Size, bool], list[torch.Tensor]] = {}
        self._specs: dict[tuple[torch.Size, bool], TensorSpec] = {}
        for name, parameter in model.named_parameters():
            spec = specs[official_name(name)]
            if spec.quantised:
                # Those that are rounded alike are rounded together: it is many small operators.
                key = (parameter.shape, spec.expert is not None)
                groups.setdefault(key, []).append(parameter)
                self._specs[key] = spec
        self._groups = groups
        self._exact: list[torch.Tensor] = []

    def __enter__(self) -> None:
        with torch.no_grad():
            self._exact = [torch.stack(parameters) for parameters in self._groups.values()]
            for key, exact in zip(self._groups, self._exact, strict=True):
                rounded = fake_quantise(self._specs[key], exact, self._block)
                torch._foreach_copy_(self._groups[key], list(rounded))

    def __exit__(self, *_: object) -> None:
        with torch.no_grad():
            for parameters, exact in zip(self._groups.values(), self._exact, strict=True):
                torch._foreach_copy_(parameters, list(exact))
        self._exact = []
