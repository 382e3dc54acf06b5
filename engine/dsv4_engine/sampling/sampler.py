"""Chooses a token for each row of logits: penalties, temperature, top-k, top-p, min-p, in this order, then one draw.

The draw takes the row's own noise (`noise`), so a row's token is a function of its logits, its request's parameters and
seed, and its position: not of the batch.

Why this is exact speculative sampling. A chain's drafts are deterministic given the tokens before them, so the draft
distribution is q = 1 on d. Rejection sampling (Leviathan et al. 2023; Chen et al. 2023) then accepts d with
probability min(1, p(d) / q(d)) = p(d) and else draws from max(p - q, 0) renormalised, which is p without d. Let T be
drawn from p by noise of this position alone, and accept iff T = d. Then d is accepted with probability p(d), and given
that it is not, T follows p without d, renormalised; so T itself is the token in both cases. The row after an accepted
draft has seen the tokens that plain decoding would have fed, and it draws by its own position's noise. Hence the output
is not only distributed like plain decoding's: with equal seeds it is the same, token for token. Penalties and filters
are part of p.

Ranks of a tensor-parallel group need no agreement: the vocabulary's shards are gathered, so every rank draws from the
same logits bit for bit, by the same integer noise, on equal devices.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from dsv4_engine.sampling.filters import filter_logits
from dsv4_engine.sampling.greedy import greedy
from dsv4_engine.sampling.logprobs import LogprobValues, logprob_values
from dsv4_engine.sampling.noise import gumbel
from dsv4_engine.sampling.penalties import TokenCounts
from dsv4_engine.sampling.rows import SampledRows, SamplingRows

_BLOCK_ELEMENTS = 1 << 24
"""Elements of a block of rows that is drawn at once: 128 MiB in float64, and there are several of them."""


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """tokens: (R,) int64. logprobs: where any request asked for them."""

    tokens: torch.Tensor
    logprobs: LogprobValues | None


def choose(
    logits: torch.Tensor,
    positions: torch.Tensor,
    prefix: torch.Tensor,
    rows: SamplingRows,
    counts: TokenCounts,
) -> Chosen:
    """(R, V) float32 logits of rows at (R,) int64 positions -> a token each, for the place after its row.

    prefix: (R, k) int64 drafts before each row, V for none (`penalties.draft_prefixes`). A batch that is all greedy
    takes the argmax and nothing else.
    """
    own = logits if rows.penalised is None else counts.penalise(logits, rows.penalised, prefix)
    tokens = greedy(own)
    if rows.sampled is not None:
        chosen = rows.sampled.rows
        tokens = tokens.index_copy(0, chosen, draw(own[chosen], positions[chosen] + 1, rows.sampled))
    values = None if rows.logprobs is None else logprob_values(logits, tokens, rows.logprobs)
    return Chosen(tokens=tokens, logprobs=values)


def draw(logits: torch.Tensor, positions: torch.Tensor, rows: SampledRows) -> torch.Tensor:
    """(S, V) penalised logits, positions of the tokens to draw (S,) -> (S,) int64.

    In float64: float32 noise has too few values near 1 for a vocabulary of 10**5.
    """
    size = max(1, _BLOCK_ELEMENTS // logits.shape[1])
    drawn = [_draw_block(logits, positions, rows, slice(start, start + size)) for start in range(0, len(logits), size)]
    return drawn[0] if len(drawn) == 1 else torch.cat(drawn)


def _draw_block(logits: torch.Tensor, positions: torch.Tensor, rows: SampledRows, block: slice) -> torch.Tensor:
    scaled = logits[block].double() / rows.temperature[block, None]
    if rows.filtered:
        scaled = filter_logits(scaled, rows.top_k[block], rows.top_p[block], rows.min_p[block])
    return (scaled + gumbel(rows.seeds[block], positions[block], logits.shape[1])).argmax(1)
