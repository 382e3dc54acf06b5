"""Which tokens may fall: top-k, then top-p of what is left, then min-p, as SGLang and vLLM understand them."""

from __future__ import annotations

import torch


def filter_logits(logits: torch.Tensor, top_k: torch.Tensor, top_p: torch.Tensor, min_p: torch.Tensor) -> torch.Tensor:
    """(R, V) float logits, temperature applied -> the same with -inf for tokens that are filtered out.

    top_k: (R,) int64, V or more keeps all. top_p: (R,) share of the probability that top-k left; the token that
    reaches the share is kept. min_p: (R,) least share of the most likely token's probability. Of equal logits the lower
    id counts as the likelier one. The most likely token always stays.
    """
    ordered, order = torch.sort(logits, dim=1, descending=True, stable=True)
    rank = torch.arange(logits.shape[1], device=logits.device)
    keep = rank < top_k[:, None]
    probs = torch.softmax(ordered.masked_fill(~keep, float("-inf")), dim=1)
    before = probs.cumsum(1) - probs
    # A share of 1 keeps all: the running sum may reach 1 by rounding before the last token.
    keep &= (before < top_p[:, None]) | (top_p >= 1)[:, None]
    keep &= probs >= min_p[:, None] * probs[:, :1]
    keep |= rank == 0
    return logits.masked_fill(~torch.zeros_like(keep).scatter_(1, order, keep), float("-inf"))
