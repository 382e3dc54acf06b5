"""Whether two dtypes, or two checkpoints, compute the same model."""

# dsv4prof: allow-file[DSV101,DSV103,DSV108] compares models offline, never in a serving step
from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch

from dsv4_engine.check.batches import rows_batch
from dsv4_engine.phase import Phase
from dsv4_engine.training.evaluate.results import Agreement
from dsv4_engine.training.evaluate.statistics import share_of
from dsv4_engine.training.evaluate.subject import Subject
from dsv4_engine.training.evaluate.teacher import Tokens
from dsv4_engine.training.evaluate.texts import Alphabet

Logits = Callable[[Tokens], torch.Tensor]
"""A text (L,) to its logits (L, V), fp32 on the CPU."""


def logits_of(subject: Subject, *, dtype: str, length: int) -> Logits:
    """The engine's target forward over one text of at most `length` tokens after another."""
    runner = subject.runner(slots=1, context_len=length, dtype=dtype)
    device = torch.device(subject.device)

    def logits(tokens: Tokens) -> torch.Tensor:
        batch = rows_batch([1], [0], [tokens.tolist()], Phase.PREFILL, device)
        return runner.forward_target(batch, logits_rows=None).logits.cpu()

    return logits


def compare(
    reference: tuple[str, Logits], other: tuple[str, Logits], texts: Sequence[Tokens], alphabet: Alphabet
) -> Agreement | None:
    """Names and logits of both; bits are counted as in `Bits`. None without texts."""
    same, counts = [], []
    largest, difference, divergence, bits, size, values = 0.0, 0.0, 0.0, [0.0, 0.0], 0, 0
    for tokens in texts:
        ours, theirs = (_centred(logits(tokens)) for logits in (reference[1], other[1]))
        gap = (ours - theirs).abs()
        largest, difference = max(largest, float(gap.max())), difference + float(gap.sum())
        values += gap.numel()
        same.append(int((ours.argmax(-1) == theirs.argmax(-1)).sum()))
        counts.append(len(tokens))
        logprobs = ours.log_softmax(-1), theirs.log_softmax(-1)
        divergence += float((logprobs[0].exp() * (logprobs[0] - logprobs[1])).sum()) / math.log(2)
        told = torch.from_numpy(tokens[1:])
        is_byte = torch.from_numpy(alphabet.byte[tokens[1:]] >= 0)
        counted = is_byte | torch.from_numpy(alphabet.end[tokens[1:]])
        size += int(is_byte.sum())
        for index, each in enumerate(logprobs):
            bits[index] -= float(each[:-1].gather(-1, told[:, None])[:, 0][counted].sum()) / math.log(2)
    argmax = share_of(same, counts)
    if argmax is None or not size:
        return None
    return Agreement(
        reference=reference[0],
        other=other[0],
        positions=sum(counts),
        max_difference=largest,
        mean_difference=difference / values,
        argmax=argmax,
        divergence=divergence / sum(counts),
        reference_bits=bits[0] / size,
        other_bits=bits[1] / size,
    )


def _centred(logits: torch.Tensor) -> torch.Tensor:
    logits = logits.double()
    return logits - logits.mean(-1, keepdim=True)
