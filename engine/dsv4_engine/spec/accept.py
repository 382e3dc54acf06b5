"""How much of a draft chain the target model agrees with."""

from __future__ import annotations

import torch


def accept_chain(drafts: torch.Tensor, predicted: torch.Tensor) -> torch.Tensor:
    """drafts (B, k) against the target's greedy tokens (B, k + 1) -> (B,) int64 tokens gained, 1 to k + 1.

    Draft i is accepted while it and all before it equal the target's token for its place; the target's token after the
    last accepted draft is gained in any case. Nothing is read by the host.
    """
    matches = (drafts == predicted[:, :-1]).to(torch.int64)
    return matches.cumprod(dim=1).sum(dim=1) + 1
