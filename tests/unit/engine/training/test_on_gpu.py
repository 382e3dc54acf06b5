"""On a GPU training is compiled and captured; neither may change a gradient."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from dsv4_engine.checkpoint.tiny import tiny_weights
from dsv4_engine.training.compiling import as_written, compile_functions
from dsv4_engine.training.model import TrainableModel
from dsv4_engine.training.options import Stage, TrainingOptions
from dsv4_engine.training.repetition import UnlikelihoodTrainee
from dsv4_engine.training.trainees import Dsv4Trainee
from dsv4_engine.training.trainer import Trainer
from engine_training_model import with_weights

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA or HIP device")]
STAGE = Stage(sparse=True, drafts=3, quantised=False)


@pytest.fixture
def fused() -> Iterator[None]:
    compile_functions(True)
    yield
    compile_functions(False)


def poison() -> None:
    """Leave large numbers in memory that is free: who reads what nobody wrote finds them."""
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    blocks = [torch.full((2**size,), 3e3, device="cuda") for size in range(7, 24) for _ in range(20)]
    del blocks


def gradients(trainee: Dsv4Trainee, ids: torch.Tensor) -> dict[str, torch.Tensor]:
    trainee.model.zero_grad(set_to_none=True)
    poison()
    with torch.autocast("cuda", torch.bfloat16):
        loss = trainee.losses(ids, STAGE)["loss"]
    loss.backward()
    return {name: each.grad.clone() for name, each in trainee.model.named_parameters()}


def test_compiled_gradients_are_right_whatever_free_memory_holds(config, fused):
    trainee = Dsv4Trainee(with_weights(config, tiny_weights(config)).cuda(), TrainingOptions())
    ids = torch.randint(2, 250, (4, 513), generator=torch.Generator().manual_seed(0)).cuda()
    with as_written():
        expected = gradients(trainee, ids)
    for _ in range(3):
        for name, gradient in gradients(trainee, ids).items():
            difference = (gradient - expected[name]).norm() / (expected[name].norm() + 1e-6)
            assert difference < 0.2, name


class Rows:
    def batch(self, step: int, rows: int) -> np.ndarray:
        return np.random.default_rng(step).integers(2, 250, (rows, 257)).astype(np.uint16)


def unlearning(model: TrainableModel, options: TrainingOptions) -> UnlikelihoodTrainee:
    return UnlikelihoodTrainee(model, options, first_byte=2, weight=1.0)


@pytest.mark.parametrize("made", [Dsv4Trainee, unlearning])
def test_captured_steps_are_the_steps_themselves(config, tmp_path, made):
    options = TrainingOptions(steps=12, rows=2, length=256, warmup=2, sparse_from=0.5, chain_from=0.5, quantise_from=1)
    losses = []
    for captured in (True, False):
        trainee = made(with_weights(config, tiny_weights(config)), options)
        run = Trainer(trainee, options, Rows(), {}, tmp_path, device=torch.device("cuda"))
        if not captured:
            run._update = run._updated
        figures = []
        for step in range(options.steps):
            figures.append(run._train(run._moved(Rows().batch(step, 2))))
            run.step += 1
        losses.append([float(each["loss"]) for each in figures])
    assert losses[0] == pytest.approx(losses[1], rel=2e-3)
    assert losses[0][-1] < losses[0][0]
