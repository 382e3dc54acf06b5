"""What the actions of the command line do, each from its parsed arguments."""

from __future__ import annotations

import argparse
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from dsv4_engine.checkpoint.config_json import config_json
from dsv4_engine.checkpoint.save import save_checkpoint
from dsv4_engine.config import ModelConfig
from dsv4_engine.errors import EngineError
from dsv4_engine.options import EngineOptions
from dsv4_engine.training.compiling import compile_functions
from dsv4_engine.training.corpus import BatchSampler, Corpus, load_corpus
from dsv4_engine.training.hash_table import balanced_table
from dsv4_engine.training.held_out import held_out_batches
from dsv4_engine.training.interrupts import StopWhenInterrupted
from dsv4_engine.training.log import read_log
from dsv4_engine.training.model import TrainableModel
from dsv4_engine.training.names import official_tensors
from dsv4_engine.training.nano import nano_config
from dsv4_engine.training.options import Pace, RefineOptions, TrainingOptions
from dsv4_engine.training.plain import PlainTransformer
from dsv4_engine.training.plot import draw
from dsv4_engine.training.quantising import QuantisedWeights
from dsv4_engine.training.refining import refine
from dsv4_engine.training.state import STATE, load_state
from dsv4_engine.training.trainees import Dsv4Trainee, PlainTrainee, Trainee
from dsv4_engine.training.trainer import Trainer

Options = TypeVar("Options", TrainingOptions, RefineOptions)


def run_train(arguments: argparse.Namespace) -> None:
    """KeyboardInterrupt once the state is saved, where Ctrl-C ended it."""
    options = _options(TrainingOptions, arguments)
    pace = Pace(
        log=arguments.log_every,
        evaluate=arguments.evaluate_every,
        save=arguments.save_every,
        minutes=arguments.minutes,
    )
    device = EngineOptions(device=arguments.device).torch_device()
    corpus = load_corpus(arguments.corpus)
    compile_functions(arguments.compile)
    torch.set_float32_matmul_precision("high")
    torch.manual_seed(options.seed)
    trainee, quantised, about = _trainee(arguments.model, corpus, options)
    print(f"{sum(parameter.numel() for parameter in trainee.model.parameters()) / 1e6:.2f} M parameters", flush=True)
    trainer = Trainer(
        trainee,
        options,
        BatchSampler(corpus.train, corpus.weights, length=options.length + 1, seed=options.seed),
        held_out_batches(corpus, options),
        arguments.folder,
        device=device,
        quantised=quantised,
        about={**about, "kind": arguments.model, "corpus": corpus.sha256},
    )
    trainer.resume()
    with StopWhenInterrupted() as interrupts:
        finished = trainer.run(pace, stop=lambda: interrupts.asked)
    if interrupts.asked and not finished:
        raise KeyboardInterrupt


def run_refine(arguments: argparse.Namespace) -> None:
    chosen = _options(RefineOptions, arguments)
    device = EngineOptions(device=arguments.device).torch_device()
    refine(arguments.folder, arguments.checkpoint, load_corpus(arguments.corpus), chosen, device=device)


def run_export(arguments: argparse.Namespace) -> None:
    state = load_state(arguments.folder, torch.device("cpu"))
    if state is None:
        raise EngineError(f"{arguments.folder} holds no {STATE}", hint="give the folder that train wrote")
    if "mtp.0.e_proj.weight" not in state["model"]:
        raise EngineError(
            f"{arguments.folder / STATE} is no DSV4 model", hint="only nano can be exported; plain is for comparison"
        )
    # States that do not say it are of the one shape that there was.
    saved = state.get("about", {}).get("config")
    config = nano_config() if saved is None else ModelConfig.from_dict(saved)
    tensors = official_tensors(state["model"])
    save_checkpoint(arguments.checkpoint, config, tensors, quantised=arguments.quantised)


def run_plot(arguments: argparse.Namespace) -> None:
    runs: dict[str, Any] = {}
    for run in arguments.runs:
        name, path = run.split("=", 1) if "=" in run else (Path(run).resolve().parent.name, run)
        if name in runs:
            raise EngineError(f"two runs are called {name}", hint="give each a name: NAME=LOG")
        runs[name] = read_log(Path(path))
    draw(runs, arguments.picture)


def _options(kind: type[Options], arguments: argparse.Namespace) -> Options:
    return kind(**{field.name: getattr(arguments, field.name) for field in fields(kind)})


def _trainee(
    model: str, corpus: Corpus, options: TrainingOptions
) -> tuple[Trainee, QuantisedWeights | None, dict[str, Any]]:
    """Also what the run's state has to say about it."""
    config = nano_config()
    if options.length > config.max_position_embeddings:
        raise EngineError(f"length is {options.length}", hint=f"choose at most {config.max_position_embeddings}")
    if model == "plain":
        return PlainTrainee(PlainTransformer(config)), None, {}
    counts = sum(np.bincount(own.tokens, minlength=config.vocab_size) for own in corpus.train.values())
    table = balanced_table(
        np.asarray(counts, dtype=np.int64), experts=config.n_routed_experts, chosen=config.num_experts_per_tok
    )
    trainable = TrainableModel(config, table=torch.from_numpy(table))
    about = {"config": config_json(config, quantised=False)}
    return Dsv4Trainee(trainable, options), QuantisedWeights(trainable), about
