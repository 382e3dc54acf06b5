"""What a trainer can train: a model together with its loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import torch
from torch import nn
from torch.nn import functional as F

from dsv4_engine.training import functions
from dsv4_engine.training.compiling import compiled
from dsv4_engine.training.model import DraftResult, TargetResult, TrainableModel
from dsv4_engine.training.options import Stage, TrainingOptions
from dsv4_engine.training.plain import PlainTransformer


class Trainee(Protocol):
    """A model and how its loss follows from a batch."""

    @property
    def model(self) -> nn.Module: ...

    def losses(self, ids: torch.Tensor, stage: Stage) -> dict[str, torch.Tensor]:
        """ids (B, length + 1) int64 -> scalars; `loss` is what to minimise, the others are for people. All in nats."""
        ...

    def steer(self, pull: float) -> None:
        """Before a step: how far `adjust` may move whatever is steered without gradients."""
        ...

    def adjust(self) -> None:
        """After the optimiser's step: move it."""
        ...

    def evaluate(self, ids: torch.Tensor, stage: Stage) -> dict[str, torch.Tensor]:
        """Figures of a held-out batch, without gradients: `nats` a token, and what else the model can tell."""
        ...


class PlainTrainee:
    """Next-token cross-entropy and nothing else."""

    def __init__(self, model: PlainTransformer) -> None:
        self.model = model

    def losses(self, ids: torch.Tensor, stage: Stage) -> dict[str, torch.Tensor]:
        del stage
        return {"loss": next_token_loss(self.model(ids[:, :-1]), ids)}

    def steer(self, pull: float) -> None:
        return

    def adjust(self) -> None:
        return

    def evaluate(self, ids: torch.Tensor, stage: Stage) -> dict[str, torch.Tensor]:
        return {"nats": self.losses(ids, stage)["loss"]}


class Dsv4Trainee:
    """Main loss, the drafts' distillation from the main model's own distribution, and the indexer's divergence.

    A draft is accepted when it is the main model's choice, so it is the main model's distribution, not the text, that
    the MTP layer is taught.
    """

    def __init__(self, model: TrainableModel, options: TrainingOptions) -> None:
        self.model, self._options = model, options
        self._loads: list[torch.Tensor] = []
        self._pull = torch.zeros(())

    def losses(self, ids: torch.Tensor, stage: Stage) -> dict[str, torch.Tensor]:
        target, drafts = self._forward(ids, stage, count=stage.drafts)
        main = next_token_loss(target.logits, ids)
        draft_losses = self._draft_losses(target, drafts)
        self._loads = [load.detach() for load in (*target.loads, *drafts.loads)]
        loss = main + self._options.draft_weight * torch.stack(draft_losses).mean() + target.index_loss
        named = {f"draft_{k + 1}": each.detach() for k, each in enumerate(draft_losses)}
        worst = torch.stack(self._loads).max() if self._loads else main.new_zeros(())
        return {"loss": loss, "main": main.detach(), "index": target.index_loss.detach(), "load": worst} | named

    def _draft_losses(self, target: TargetResult, drafts: DraftResult) -> list[torch.Tensor]:
        return [
            compiled(functions.soft_cross_entropy)(
                logits[:, k:-1].flatten(0, 1), target.logits[:, k + 1 :].flatten(0, 1)
            ).mean()
            for k, logits in enumerate(drafts.logits)
        ]

    def steer(self, pull: float) -> None:
        self._pull = self._pull.to(next(self.model.parameters()).device).fill_(pull)

    def adjust(self) -> None:
        with torch.no_grad():
            for gate, load in zip(self.model.steered_gates(), self._loads, strict=True):
                gate.bias += self._pull * torch.sign(1 - load)

    def evaluate(self, ids: torch.Tensor, stage: Stage) -> dict[str, torch.Tensor]:
        """`accept_length`: mean over chains that begin anywhere in the text, drafts against the main model's choice."""
        count = self._options.drafts
        target, drafts = self._forward(ids, stage, count=count)
        choice = target.logits.argmax(-1)
        starts = choice.shape[1] - count
        running = torch.ones_like(choice[:, :starts], dtype=torch.float32)
        length = running.clone()
        figures = {"nats": next_token_loss(target.logits, ids), "index": target.index_loss}
        for k, logits in enumerate(drafts.logits):
            agrees = logits.argmax(-1)[:, k : k + starts] == choice[:, k + 1 : k + 1 + starts]
            running = running * agrees
            length = length + running
            figures[f"accepted_{k + 1}"] = running.mean()
        return figures | {"accept_length": length.mean()}

    def _forward(self, ids: torch.Tensor, stage: Stage, *, count: int) -> tuple[TargetResult, DraftResult]:
        target: TargetResult = self.model(ids[:, :-1], sparse=stage.sparse)
        return target, self.model.drafts(target.streams, ids[:, 1:], count=count)


def next_token_loss(logits: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    """Mean cross-entropy in nats of logits (B, T, V) for the tokens after each of ids (B, T + 1)."""
    return F.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten())


def mean_figures(figures: list[Mapping[str, torch.Tensor]]) -> dict[str, float]:
    """Means over batches, read to the host together."""
    names = list(figures[0]) if figures else []
    # dsv4prof: allow[DSV102] what a person or a plot reads, once in many steps
    means = torch.stack([torch.stack([each[name].float() for name in names]) for each in figures]).mean(0).tolist()
    return dict(zip(names, means, strict=True))
