"""Quantisation-aware training uses what the checkpoint will hold, and moves what it was made of."""

from __future__ import annotations

import pytest
import torch

from dsv4_engine.checkpoint.layout import tensor_specs
from dsv4_engine.checkpoint.load import load_checkpoint
from dsv4_engine.checkpoint.save import save_checkpoint
from dsv4_engine.training.names import official_tensors
from dsv4_engine.training.quantising import QuantisedWeights


def test_inside_are_the_weights_of_the_quantised_checkpoint_outside_the_exact_ones(config, model, tmp_path):
    exact = official_tensors({name: value.clone() for name, value in model.state_dict().items()})
    save_checkpoint(tmp_path, config, exact, quantised=True)
    _, stored = load_checkpoint(tmp_path)
    with QuantisedWeights(model):
        inside = official_tensors(model.state_dict())
        quantised = [name for name, spec in tensor_specs(config).items() if spec.quantised]
        assert all(torch.equal(inside[name], stored[name]) for name in quantised)
        assert any(not torch.equal(inside[name], exact[name]) for name in quantised)
    outside = official_tensors(model.state_dict())
    assert all(torch.equal(outside[name], exact[name]) for name in exact)


def test_an_error_inside_leaves_the_exact_weights(config, model):
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(RuntimeError, match="inside"), QuantisedWeights(model):
        raise RuntimeError("inside")
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
