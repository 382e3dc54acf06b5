"""Greedy continuations of held-out openings, made by the engine as it serves."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np

from dsv4_engine.engine import Engine
from dsv4_engine.request import FinishReason
from dsv4_engine.training.evaluate.acceptance import drafts_of
from dsv4_engine.training.evaluate.results import Generations
from dsv4_engine.training.evaluate.settings import Settings
from dsv4_engine.training.evaluate.statistics import share_of
from dsv4_engine.training.evaluate.subject import Subject
from dsv4_engine.training.evaluate.teacher import Tokens
from dsv4_engine.training.evaluate.texts import Alphabet, Opening

_GRAM = 4


@dataclass(frozen=True, kw_only=True, eq=False)
class Written:
    """What one opening became. accept_lens: of the engine's verifies. ended: by an end token."""

    opening: Opening
    tokens: Tokens
    accept_lens: tuple[int, ...]
    ended: bool


def write(subject: Subject, openings: Sequence[Opening], settings: Settings) -> list[Written]:
    """Greedy, with drafts where the model can make them, until an end token or `new_tokens`."""
    longest = max(len(opening.prefix) for opening in openings)
    engine = Engine(
        subject.options(
            num_drafts=settings.num_drafts if subject.config.has_mtp else 0,
            max_requests=min(settings.batch, len(openings)),
            chunk_tokens=1024,
            context_len=min(longest + settings.new_tokens, subject.config.max_position_embeddings),
            exact_num_tokens=True,
            radix=False,
        )
    )
    ids = [engine.add(opening.prefix.tolist(), max_new_tokens=settings.new_tokens) for opening in openings]
    while engine.has_work:
        engine.step()
    written = []
    for opening, request in zip(openings, ids, strict=True):
        result = engine.result(request)
        written.append(
            Written(
                opening=opening,
                tokens=np.array(result.tokens, dtype=np.int64),
                accept_lens=result.accept_lens,
                ended=result.finish_reason is FinishReason.STOP,
            )
        )
    return written


def generations_of(
    written: Sequence[Written],
    alphabet: Alphabet,
    *,
    num_drafts: int,
    clusters: Sequence[Hashable] | None = None,
) -> Generations | None:
    """num_drafts: 0 where the model makes none. clusters: each opening's document. None where nothing was written."""
    ones = [1] * len(written)
    ended = share_of([int(each.ended) for each in written], ones, clusters=clusters)
    if ended is None:
        return None
    # Repetition is compared over equally long stretches: the longer a text, the more it repeats.
    ours = [each.tokens[: len(each.opening.truth)] for each in written]
    theirs = [each.opening.truth[: len(own)] for each, own in zip(written, ours, strict=True)]
    gained = sum(len(each.tokens) - 1 for each in written)
    steps = sum(len(each.accept_lens) for each in written) if num_drafts else gained
    return Generations(
        prompts=len(written),
        tokens=sum(len(each.tokens) for each in written),
        ended=ended,
        held_out_ended=sum(bool(alphabet.end[each.opening.truth].any()) for each in written) / len(written),
        distinct_tokens=_distinct([tokens.tolist() for tokens in ours]),
        held_out_tokens=_distinct([tokens.tolist() for tokens in theirs]),
        distinct_words=_distinct([alphabet.text(tokens).split() for tokens in ours]),
        held_out_words=_distinct([alphabet.text(tokens).split() for tokens in theirs]),
        drafts=drafts_of([each.accept_lens for each in written], num_drafts=num_drafts, clusters=clusters)
        if num_drafts
        else None,
        steps=steps,
        tokens_per_step=gained / steps if steps else 1.0,
    )


def _distinct(texts: Sequence[Sequence[int]] | Sequence[Sequence[bytes]]) -> float:
    """Different runs of 4 within a text over its runs of 4, summed over texts; 1 where no text is that long."""
    grams = [[tuple(text[i : i + _GRAM]) for i in range(len(text) - _GRAM + 1)] for text in texts]
    total = sum(map(len, grams))
    return sum(len(set(each)) for each in grams) / total if total else 1.0
