"""A tiny trainable model of every kind of layer."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from dsv4_engine.checkpoint.configs import tiny_config
from dsv4_engine.checkpoint.tiny import tiny_weights
from dsv4_engine.config import ModelConfig
from dsv4_engine.training.model import TrainableModel
from engine_training_model import with_weights


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def config() -> ModelConfig:
    return tiny_config()


@pytest.fixture
def model(config: ModelConfig) -> TrainableModel:
    return with_weights(config, tiny_weights(config))
