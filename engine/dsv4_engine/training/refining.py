"""Refining a checkpoint: rounds of greedy text of its own, and of steps that unlearn what repeats in it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path

import torch

from dsv4_engine.checkpoint.config_json import config_json
from dsv4_engine.checkpoint.load import load_checkpoint
from dsv4_engine.checkpoint.save import save_checkpoint
from dsv4_engine.config import ModelConfig
from dsv4_engine.errors import EngineError
from dsv4_engine.tokenizer import load_tokenizer
from dsv4_engine.training.corpus import BatchSampler, Corpus
from dsv4_engine.training.corpus.documents import NUM_SPECIALS, require_same_tokens
from dsv4_engine.training.held_out import held_out_batches
from dsv4_engine.training.model import TrainableModel
from dsv4_engine.training.names import model_state, official_tensors
from dsv4_engine.training.options import Pace, RefineOptions
from dsv4_engine.training.quantising import QuantisedWeights
from dsv4_engine.training.repetition import OwnContinuations, UnlikelihoodTrainee
from dsv4_engine.training.trainer import Trainer

_SEED = 7
"""Of the rows of real text; another one than training's default."""
_EVALUATE_ROUNDS = 4


def refine(folder: Path, checkpoint: str, corpus: Corpus, chosen: RefineOptions, *, device: torch.device) -> None:
    """Go on with a checkpoint, of any of the formats that the engine reads, in a training folder, which is resumed
    where it holds a state of the same refinement: the last whole round is kept.

    EngineError for a checkpoint that cannot be refined on this corpus, and as `Trainer.run`.
    """
    options = chosen.training()
    config, weights = load_checkpoint(checkpoint)
    _require_fits(checkpoint, config, chosen)
    model = TrainableModel(config, table=torch.zeros(config.vocab_size, config.num_experts_per_tok, dtype=torch.int64))
    model.load_state_dict(model_state(model.state_dict(), weights, config.n_routed_experts))
    real = BatchSampler(corpus.train, corpus.weights, length=options.length + 1, seed=_SEED)
    trainer = Trainer(
        UnlikelihoodTrainee(model, options, first_byte=NUM_SPECIALS, weight=chosen.weight),
        options,
        real,
        held_out_batches(corpus, options),
        folder,
        device=device,
        quantised=QuantisedWeights(model),
        about={
            **asdict(chosen),
            "config": config_json(config, quantised=False),
            "corpus": corpus.sha256,
            "checkpoint": _digest(weights),
        },
    )
    trainer.resume()
    own_rows = chosen.rows - chosen.rows // 2  # the trainee takes the first half of a batch for real ones
    pace = Pace(log=chosen.round_steps, evaluate=_EVALUATE_ROUNDS * chosen.round_steps, save=chosen.round_steps)
    served = folder / "served"
    for begin in range(trainer.step, options.steps, chosen.round_steps):
        save_checkpoint(served, config, official_tensors(model.state_dict()), quantised=True)
        turn = range(begin, begin + chosen.round_steps)
        trainer.feed(OwnContinuations(str(served), real, rows=own_rows, steps=turn))
        trainer.run(pace, until=turn.stop)


def _require_fits(checkpoint: str, config: ModelConfig, chosen: RefineOptions) -> None:
    require_same_tokens(checkpoint, config, load_tokenizer(checkpoint, config))
    if not config.has_mtp:
        raise EngineError(f"{checkpoint} has no MTP layer", hint="refine teaches its drafts as well; it needs one")
    if chosen.length % config.sliding_window:
        raise EngineError(
            f"length is {chosen.length}", hint=f"choose a multiple of {checkpoint}'s window, {config.sliding_window}"
        )
    if chosen.length >= config.max_position_embeddings:
        raise EngineError(
            f"length is {chosen.length}",
            hint=f"choose less than what {checkpoint} holds, {config.max_position_embeddings}",
        )


def _digest(weights: Mapping[str, torch.Tensor]) -> str:
    """sha256 of names and values, float32 or int64, in the order in which checkpoints are read."""
    found = hashlib.sha256()
    for name, values in weights.items():
        found.update(name.encode())
        found.update(values.contiguous().numpy().tobytes())
    return found.hexdigest()
