"""What an evaluation found, as plain facts that go into a JSON file and a model card."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from dsv4_engine.training.evaluate.settings import Settings
from dsv4_engine.training.evaluate.statistics import Estimate


@dataclass(frozen=True, kw_only=True)
class Bits:
    """Bits that held-out texts cost, over their bytes. The model's bits are those of every byte and of the end token,
    each given the text before it, up to the excerpt's length; conversation markers cost nothing. The first byte is told
    by the begin token; of an excerpt from within a document it is given, and no compressor has to store it either.

    gzip_*, lzma_*: level 9 on the same bytes, each text alone, as the model reads it, and all of them in one file.
    """

    model: Estimate
    texts: int
    bytes: int
    gzip_each: float
    gzip_whole: float
    lzma_each: float
    lzma_whole: float


@dataclass(frozen=True, kw_only=True)
class Drafts:
    """length: mean tokens gained by a step, 1 to drafts + 1. accepted[k]: share of steps in which draft k (from 0) and
    all before it were right; given_previous[k]: the same, among the steps in which those before it were.
    lengths[k]: steps that gained k + 1 tokens.
    """

    length: Estimate
    accepted: tuple[Estimate, ...]
    given_previous: tuple[Estimate | None, ...]
    lengths: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Generations:
    """Greedy continuations of held-out openings. ended: the share that produced an end token within `new_tokens`;
    held_out_ended: the share of documents that end within as many.

    distinct_*: different 4-grams over all 4-grams, of tokens and of words between blanks, and `held_out_*` those of
    what the documents themselves go on with, cut to the same number of tokens; low means repetition.
    drafts: from the engine's own verifies, None without an MTP layer. tokens_per_step: tokens over target steps after
    the prompt, 1 without drafts, so also the factor by which drafts save steps.
    """

    prompts: int
    tokens: int
    ended: Estimate
    held_out_ended: float
    distinct_tokens: float
    held_out_tokens: float
    distinct_words: float
    held_out_words: float
    drafts: Drafts | None
    steps: int
    tokens_per_step: float


@dataclass(frozen=True, kw_only=True)
class KindResult:
    """verified: drafts at positions of held-out text, judged by the target; text: judged by the text itself."""

    kind: str
    bits: Bits
    generations: Generations | None
    verified: Drafts | None
    text: Drafts | None


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """Two ways to compute the same held-out texts. argmax: share of positions with the same most likely token.

    max_difference, mean_difference: of logits, after each row's mean is taken off, since softmax does not see it.
    divergence: mean Kullback-Leibler divergence of `other` from `reference` in bits. bits: a byte, of both.
    """

    reference: str
    other: str
    positions: int
    max_difference: float
    mean_difference: float
    argmax: Estimate
    divergence: float
    reference_bits: float
    other_bits: float


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """kinds: one result a kind of document, and last `all`, their texts together (equally many of each kind)."""

    model: str
    parameters: int
    device: str
    dtype: str
    torch: str
    seconds: float
    settings: Settings
    kinds: tuple[KindResult, ...]
    agreements: tuple[Agreement, ...]

    def to_json(self) -> str:
        return json.dumps(_rounded(asdict(self)), indent=1) + "\n"


def _rounded(value: Any) -> Any:
    """Six significant digits: more would only be noise in a file that is compared by people."""
    if isinstance(value, dict):
        return {key: _rounded(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(each) for each in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value
