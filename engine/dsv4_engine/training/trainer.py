"""The training loop: batches in, optimiser steps, a log, held-out figures, and a state to resume from."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import nn

from dsv4_engine.errors import EngineError
from dsv4_engine.training.compiling import as_written
from dsv4_engine.training.graphed import GraphedUpdate, set_number
from dsv4_engine.training.log import append_line, take_up_log
from dsv4_engine.training.options import Pace, Stage, TrainingOptions
from dsv4_engine.training.quantising import QuantisedWeights
from dsv4_engine.training.state import STATE, load_state, require_same_run, save_state
from dsv4_engine.training.trainees import Trainee, mean_figures

_MIXER_RATE = 0.2


class Batches(Protocol):
    """A pure function of the step, so that a resumed run sees what the first would have seen."""

    def batch(self, step: int, rows: int) -> np.ndarray[Any, Any]:
        """(rows, length + 1) token ids."""
        ...


class Trainer:
    """Trains one model in one folder; `run` goes on from the folder's state where `resume` found one."""

    def __init__(
        self,
        trainee: Trainee,
        options: TrainingOptions,
        batches: Batches,
        held_out: Mapping[str, Sequence[np.ndarray[Any, Any]]],
        folder: Path,
        *,
        device: torch.device,
        quantised: QuantisedWeights | None = None,
        about: Mapping[str, Any] | None = None,
    ) -> None:
        """held_out: by kind of text, batches (rows, length + 1). quantised: what `quantise_from` switches on. about:
        what else the run depends on, as plain values; it is saved, and a state with another one is not taken up.
        """
        self._trainee, self._options, self._batches, self._held_out = trainee, options, batches, held_out
        self._folder, self._device, self._quantised = folder, device, quantised
        self._about = dict(about or {})
        self._model = trainee.model.to(device)
        self._optimizer = _optimizer(self._model, options, device)
        self._update = GraphedUpdate(self._updated) if device.type == "cuda" else self._updated
        self._seconds = 0.0
        self._has_log = False
        self.step = 0

    def resume(self) -> bool:
        """Take up the folder's state; False where there is none, EngineError where it is another run's."""
        state = load_state(self._folder, self._device)
        if state is None:
            return False
        saved = {**state["options"], **state.get("about", {})}
        require_same_run(self._folder, saved, {**asdict(self._options), **self._about})
        own = [{name: value for name, value in each.items() if name != "params"} for each in self._groups]
        self._model.load_state_dict(state["model"])
        self._optimizer.load_state_dict(state["optimizer"])
        for group, settings in zip(self._groups, own, strict=True):
            group.update(settings)  # the state may come from another kind of device
        self.step, self._seconds = state["step"], state["seconds"]
        print(f"goes on after step {self.step} of {self._options.steps}", flush=True)
        return True

    def save(self) -> None:
        """Replace the folder's state at once; EngineError, and the state before, where that fails."""
        state = {
            "options": asdict(self._options),
            "about": self._about,
            "model": self._model.state_dict(),
            "optimizer": self._optimizer.state_dict(),
            "step": self.step,
            "seconds": self._seconds,
        }
        save_state(self._folder, state)

    def feed(self, batches: Batches) -> None:
        """Go on with other batches."""
        self._batches = batches

    def run(self, pace: Pace, *, until: int | None = None, stop: Callable[[], bool] = lambda: False) -> bool:
        """Train to the last step or to another, or until the time is up or `stop` says so, which is asked after each
        step; whether all steps are made. EngineError where the folder cannot be written, and on a loss that is no
        number, with the last state kept.
        """
        self._open_folder()
        begun, before = time.monotonic(), self._seconds
        pending: list[Mapping[str, torch.Tensor]] = []
        for ids in self._prefetched(self._options.steps if until is None else until):
            pending.append(self._train(ids))
            self.step += 1
            self._seconds = before + time.monotonic() - begun
            done = self.step == self._options.steps
            stops = stop() or (pace.minutes is not None and time.monotonic() - begun > 60 * pace.minutes)
            saves = self.step % pace.save == 0 or done or stops
            if self.step % pace.log == 0 or saves:
                self._log("train", self._means(pending) | {"rate": self._options.rate(self.step - 1)})
                pending = []
            if self.step % pace.evaluate == 0 or done:
                self.evaluate()
            if saves:
                self.save()
            if stops:
                break
        return self.step == self._options.steps

    def _open_folder(self) -> None:
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            if not os.access(self._folder, os.W_OK | os.X_OK):
                raise PermissionError("no permission")
            if not self._has_log:
                take_up_log(self._folder, self.step)
                self._has_log = True
        except OSError as error:
            raise EngineError(f"{self._folder} cannot be written: {error}", hint="choose another folder") from None

    def _means(self, pending: list[Mapping[str, torch.Tensor]]) -> dict[str, float]:
        figures = mean_figures(pending)
        if not math.isfinite(figures["loss"]):
            raise EngineError(
                f"the loss is no longer a finite number at step {self.step}",
                hint=f"try a lower learning rate; {STATE}, if any, is from before",
            )
        return figures

    def evaluate(self) -> dict[str, dict[str, float]]:
        """Figures by kind of held-out text; written to the log as well."""
        stage = self._options.stage(max(self.step - 1, 0))
        figures = {}
        self._model.eval()
        # Not worth compiling: it would be other functions, without gradients.
        with torch.no_grad(), as_written(), self._as_quantised(stage), self._autocast():
            for kind, batches in self._held_out.items():
                figures[kind] = mean_figures([self._trainee.evaluate(self._moved(ids), stage) for ids in batches])
        self._model.train()
        for kind, values in figures.items():
            self._log(f"held_out/{kind}", values)
        return figures

    def _train(self, ids: torch.Tensor) -> Mapping[str, torch.Tensor]:
        rate = self._options.rate(self.step)
        for group in self._groups:
            set_number(group, "lr", group["share"] * rate)
        self._trainee.steer(self._options.balance * rate / self._options.learning_rate)
        return self._update(ids, self._options.stage(self.step))

    def _updated(self, ids: torch.Tensor, stage: Stage) -> Mapping[str, torch.Tensor]:
        """One step of the optimiser; nothing here reads the device or changes from step to step within a stage."""
        with self._as_quantised(stage):
            with self._autocast():
                losses = self._trainee.losses(ids, stage)
            losses["loss"].backward()
        norm = nn.utils.clip_grad_norm_(self._model.parameters(), self._options.clip)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self._trainee.adjust()
        return {name: value.detach() for name, value in losses.items()} | {"gradient": norm.detach()}

    @property
    def _groups(self) -> list[dict[str, Any]]:
        return self._optimizer.param_groups

    def _as_quantised(self, stage: Stage) -> Any:
        return self._quantised if self._quantised is not None and stage.quantised else nullcontext()

    def _autocast(self) -> Any:
        return torch.autocast("cuda", torch.bfloat16) if self._device.type == "cuda" else nullcontext()

    def _prefetched(self, until: int) -> Iterator[torch.Tensor]:
        """The batches from this step on, each gathered while the one before is trained on."""
        rows = self._options.rows
        with ThreadPoolExecutor(1) as gatherer:
            ahead = gatherer.submit(self._batches.batch, self.step, rows)
            for step in range(self.step, until):
                ids = ahead.result()
                ahead = gatherer.submit(self._batches.batch, step + 1, rows)
                yield self._moved(ids)

    def _moved(self, ids: np.ndarray[Any, Any]) -> torch.Tensor:
        host = torch.from_numpy(ids.astype(np.int64))
        return host.pin_memory().to(self._device, non_blocking=True) if self._device.type == "cuda" else host

    def _log(self, event: str, figures: Mapping[str, float]) -> None:
        tokens = self.step * self._options.rows * self._options.length
        line = {"step": self.step, "tokens": tokens, "seconds": round(self._seconds, 2), "event": event}
        line |= {name: round(value, 6) for name, value in figures.items()}
        try:
            append_line(self._folder, line)
        except OSError as error:
            raise EngineError(
                f"the log in {self._folder} cannot be written: {error}", hint="is the disk full?"
            ) from None
        print(json.dumps(line), flush=True)


def _optimizer(model: nn.Module, options: TrainingOptions, device: torch.device) -> torch.optim.Optimizer:
    """AdamW. Only matrices of products decay. What mixes streams reads hc times as much, and moves more slowly."""
    matrices, mixers, others = [], [], []
    for name, parameter in model.named_parameters():
        if name.endswith(".fn"):
            mixers.append(parameter)
        elif parameter.ndim >= 2 and not name.endswith(".ape") and not name.startswith("embed."):
            matrices.append(parameter)
        else:
            others.append(parameter)
    groups: list[dict[str, Any]] = [
        {"params": matrices, "weight_decay": options.weight_decay, "share": 1.0},
        {"params": mixers, "weight_decay": 0.0, "share": _MIXER_RATE},
        {"params": others, "weight_decay": 0.0, "share": 1.0},
    ]
    on_gpu = device.type == "cuda"
    if on_gpu:
        # A tensor each, for a captured step to find the rate in.
        groups = [group | {"lr": torch.zeros((), device=device)} for group in groups]
    rate = options.learning_rate
    return torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.95), eps=1e-9, fused=on_gpu, capturable=on_gpu)
