"""What a training run is told, and what follows from its progress."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dsv4_engine.errors import EngineError
from dsv4_engine.options import MAX_DRAFTS

LONGEST_RATIO = 128
"""Tokens of the longest compression window: a row is a multiple of it."""

_WARMUP_ROUNDS = 3
"""Of a refinement."""


@dataclass(frozen=True, kw_only=True)
class Stage:
    """sparse: ratio-4 layers keep to the indexer's choice. drafts: length of the chains that are trained. quantised:
    the weights are used as fp8 and mxfp4 hold them."""

    sparse: bool
    drafts: int
    quantised: bool


@dataclass(frozen=True, kw_only=True)
class Pace:
    """When a run pauses, in steps: to log, to evaluate, to save. minutes: after which it saves and stops."""

    log: int = 50
    evaluate: int = 1000
    save: int = 1000
    minutes: float | None = None

    def __post_init__(self) -> None:
        for name in ("log", "evaluate", "save"):
            require(f"{name}_every", getattr(self, name), least=1)
        if self.minutes is not None:
            require("minutes", self.minutes, least=0)


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """steps: optimiser steps in all, warm-up and decay included. rows, length: sequences of a batch and tokens of each.

    learning_rate: of AdamW, held after `warmup` steps (at most all), falling linearly to zero over the last `decay`
    share of the steps. clip: the gradient's largest norm. draft_weight: of the MTP layer's loss beside the main one.
    drafts: drafts of a chain that are trained; before `chain_from` only the first. sparse_from: share of the steps
    after which ratio-4 layers keep to the indexer's choice. balance: step of the router biases towards even loads
    (arXiv 2408.15664). quantise_from: share of the steps after which weights are used as the fp8 and mxfp4 checkpoint
    will hold them; 1 for never. EngineError on values that cannot be meant.
    """

    steps: int = 2600
    rows: int = 64
    length: int = 1024
    learning_rate: float = 2e-3
    warmup: int = 150
    decay: float = 0.4
    weight_decay: float = 0.1
    clip: float = 1.0
    drafts: int = 3
    draft_weight: float = 0.3
    chain_from: float = 0.4
    sparse_from: float = 0.15
    balance: float = 5e-3
    quantise_from: float = 0.85
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("steps", "rows", "length"):
            require(name, getattr(self, name), least=1)
        require("drafts", self.drafts, least=1, most=MAX_DRAFTS)
        require("warmup", self.warmup, least=0)
        for name in ("decay", "chain_from", "sparse_from", "quantise_from"):
            require(name, getattr(self, name), least=0, most=1)
        for name in ("weight_decay", "draft_weight", "balance"):
            require(name, getattr(self, name), least=0)
        for name in ("learning_rate", "clip"):
            require(name, getattr(self, name), above=0)
        require("seed", self.seed, least=0, most=2**63 - 1)
        if self.length % LONGEST_RATIO:
            raise EngineError(f"length is {self.length}", hint=f"choose a multiple of {LONGEST_RATIO}")

    def progress(self, step: int) -> float:
        """Share of the steps that lie behind."""
        return step / self.steps

    def rate(self, step: int) -> float:
        """Learning rate of a step (0-based)."""
        rise = min((step + 1) / max(min(self.warmup, self.steps), 1), 1.0)
        left = (self.steps - step) / max(self.decay * self.steps, 1)
        return self.learning_rate * min(rise, left, 1.0)

    def stage(self, step: int) -> Stage:
        """How a step is computed."""
        progress = self.progress(step)
        return Stage(
            sparse=progress >= self.sparse_from,
            drafts=self.drafts if progress >= self.chain_from else 1,
            quantised=progress >= self.quantise_from,
        )


@dataclass(frozen=True, kw_only=True)
class RefineOptions:
    """rounds: of new continuations; round_steps: optimiser steps of each. rows: of a batch, half of them continuations.
    length: tokens of a row. weight: of what is unlearned, beside the main loss. EngineError on values that cannot be
    meant.
    """

    rounds: int = 60
    round_steps: int = 6
    rows: int = 16
    length: int = 256
    learning_rate: float = 1e-4
    weight: float = 0.5

    def __post_init__(self) -> None:
        for name in ("rounds", "round_steps"):
            require(name, getattr(self, name), least=1)
        require("rows", self.rows, least=2)
        require("weight", self.weight, least=0)

    def training(self) -> TrainingOptions:
        """Every stage is switched on from the first step: the model has been trained."""
        steps = self.rounds * self.round_steps
        return TrainingOptions(
            steps=steps,
            rows=self.rows,
            length=self.length,
            learning_rate=self.learning_rate,
            warmup=_WARMUP_ROUNDS * self.round_steps,
            decay=0.5,
            chain_from=0,
            sparse_from=0,
            quantise_from=0,
            balance=5e-4,
        )


def require(
    name: str, value: float, *, least: float | None = None, most: float = math.inf, above: float | None = None
) -> None:
    """EngineError on a number that is not finite, below `least`, not over `above`, or over `most`."""
    low = value > above if above is not None else least is None or value >= least
    if not (low and value <= most and math.isfinite(value)):
        choice = f"more than {above}" if above is not None else f"at least {least}"
        limit = "" if math.isinf(most) else f", at most {most}"
        raise EngineError(f"{name} is {value}", hint=f"choose {choice}{limit}")
