"""A trainable model that holds given weights."""

from __future__ import annotations

import torch

from dsv4_engine.config import ModelConfig
from dsv4_engine.training.model import TrainableModel
from dsv4_engine.training.names import model_state


def with_weights(config: ModelConfig, weights: dict[str, torch.Tensor]) -> TrainableModel:
    table = torch.zeros(config.vocab_size, config.num_experts_per_tok, dtype=torch.int64)
    trainable = TrainableModel(config, table=table)
    trainable.load_state_dict(model_state(trainable.state_dict(), weights, config.n_routed_experts))
    return trainable
