"""Unlearning of loops: greedy text of a small model soon repeats itself for ever.

The model goes on with real prompts by itself, and what it repeats there is made less likely (sequence-level
unlikelihood, arXiv 1908.04319), while real text in the same batch keeps everything else as it was. Of what repeats at a
distance only the first byte of each word is unlearned: inside of a word there is nothing else to say.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch.nn import functional as F

from dsv4_engine.engine import Engine
from dsv4_engine.options import EngineOptions
from dsv4_engine.training.model import TrainableModel
from dsv4_engine.training.options import Stage, TrainingOptions
from dsv4_engine.training.trainees import Dsv4Trainee, next_token_loss
from dsv4_engine.training.trainer import Batches

SPAN = 20
"""Bytes that must have occurred before, in a row, for a text to count as repeating itself."""
_SHORT_PERIOD = 8
"""Up to this distance every byte that repeats is unlearned, blanks aside: of 66666 and of `'', '', '', `."""
_PROMPTS = 8
"""Lengths of prompts that a batch mixes."""
_WORD = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"
_BLANK = b" \n"
_BATCH = 32
_ELSEWHERE = 1_000_000
"""Added to a step, it is one whose real rows no batch uses."""


def repeats(ids: torch.Tensor, span: int = SPAN, *, within: int | None = None) -> torch.Tensor:
    """(B, L) bool: whether the `span` tokens that end here have all stood in the same order earlier in the row, and
    ended there at most `within` tokens ago (None: anywhere).

    Takes a few times B * L * L bytes, little beside what the same rows cost in attention, and reads nothing back.
    """
    length = ids.shape[1]
    same = torch.ones(len(ids), length, length, dtype=torch.bool, device=ids.device).tril(-1)
    if within is not None:
        same = same.triu(-within)
    for back in range(span):
        shifted = F.pad(ids, (back, 0), value=-1)[:, :length]
        same &= (shifted[:, :, None] == shifted[:, None]) & (shifted >= 0)[:, None]
    return same.any(-1)


def word_starts(ids: torch.Tensor, word: torch.Tensor) -> torch.Tensor:
    """(B, L) bool: tokens of words behind ones that are none. word: (V,) bool, which tokens words are made of."""
    inside = word[ids]
    return inside & ~F.pad(inside, (1, 0))[:, :-1]


def byte_tokens(characters: bytes, vocab_size: int, first_byte: int) -> torch.Tensor:
    """(V,) bool: which tokens are one of these bytes, where byte b has the id first_byte + b."""
    found = torch.zeros(vocab_size, dtype=torch.bool)
    found[[first_byte + byte for byte in characters]] = True
    return found


def prompt_lengths(rows: int, length: int) -> list[int]:
    """Tokens of real text that each row of a batch begins with: short prompts and long ones, up to half of a row."""
    return [max(length * (1 + row % _PROMPTS) // (2 * _PROMPTS), 1) for row in range(rows)]


class UnlikelihoodTrainee(Dsv4Trainee):
    """Batches whose second half are the model's own continuations of prompts as long as `prompt_lengths` says."""

    def __init__(self, model: TrainableModel, options: TrainingOptions, *, first_byte: int, weight: float) -> None:
        super().__init__(model, options)
        self._weight, size = weight, model.config.vocab_size
        self._word, self._blank = (byte_tokens(each, size, first_byte) for each in (_WORD, _BLANK))

    def losses(self, ids: torch.Tensor, stage: Stage) -> dict[str, torch.Tensor]:
        """As `Dsv4Trainee`, the main loss on the real half; `repeated` counts what repeats, a word of it."""
        target, drafts = self._forward(ids, stage, count=stage.drafts)
        real, own = len(ids) // 2, ids[len(ids) // 2 :]
        main = next_token_loss(target.logits[:real], ids[:real])
        # Kept there: a step that is captured as a graph may not copy from the host.
        self._word, self._blank = self._word.to(ids.device), self._blank.to(ids.device)
        # Neither the prompt nor what stands behind the end of the continuation is the model's own.
        ends = torch.zeros_like(own, dtype=torch.bool)
        for token in self.model.config.eos_token_ids:
            ends |= own == token
        written = torch.ones_like(ends)
        for row, prompt in enumerate(prompt_lengths(len(own), own.shape[1])):
            ends[row, :prompt] = False
            written[row, :prompt] = False
        written &= ends.cumsum(1) == 0
        starts = word_starts(own, self._word) & written
        drumming = written & ~self._blank[own] & repeats(own, within=_SHORT_PERIOD)
        repeated = ((starts & repeats(own)) | drumming)[:, 1:]
        likely = torch.softmax(target.logits[real:], -1).gather(-1, own[:, 1:, None])[..., 0]
        unlikelihood = -torch.log1p(-likely.clamp(max=1 - 1e-4))
        unlearned = (unlikelihood * repeated).sum() / starts.sum().clamp(min=1)
        draft_loss = torch.stack(self._draft_losses(target, drafts)).mean()
        self._loads = [load.detach() for load in (*target.loads, *drafts.loads)]
        loss = main + self._weight * unlearned + self._options.draft_weight * draft_loss + target.index_loss
        return {
            "loss": loss,
            "main": main.detach(),
            "draft": draft_loss.detach(),
            "unlikelihood": unlearned.detach(),
            "repeated": repeated.sum() / starts.sum().clamp(min=1),
        }


class OwnContinuations:
    """Half of each batch real rows, half the greedy continuations that one checkpoint's model gives to real rows."""

    def __init__(self, model: str, real: Batches, *, rows: int, steps: range) -> None:
        """rows: continuations a step."""
        real_rows = np.concatenate([real.batch(_ELSEWHERE + step, rows) for step in steps])
        self._real, self._first = real, steps.start
        self._own = continued(model, real_rows, rows).reshape(len(steps), rows, -1)

    def batch(self, step: int, rows: int) -> np.ndarray[Any, Any]:
        """(rows, length): real ones first. Steps outside of the range, which nobody trains on, repeat the last."""
        own = self._own[min(step - self._first, len(self._own) - 1)]
        return np.concatenate((self._real.batch(step, rows - len(own)), own))


def continued(model: str, rows: np.ndarray[Any, Any], batch: int) -> np.ndarray[Any, Any]:
    """What the served model greedily makes of the first tokens of rows (N, length); behind its end, the rows' text.

    batch: rows of one step, in whose order prompts are short or long.
    """
    length = rows.shape[1]
    prompts = prompt_lengths(batch, length) * (len(rows) // batch)
    options = EngineOptions(
        model=model, max_requests=_BATCH, context_len=length + 1, chunk_tokens=1024, exact_num_tokens=True, radix=False
    )
    engine = Engine(options)
    ids = [
        engine.add(row[:prompt].tolist(), max_new_tokens=length - prompt)
        for row, prompt in zip(rows, prompts, strict=True)
    ]
    while engine.has_work:
        engine.step()
    written = rows.copy()
    for row, request, prompt in zip(written, ids, prompts, strict=True):
        output = engine.result(request).tokens
        row[prompt : prompt + len(output)] = output
    return written
