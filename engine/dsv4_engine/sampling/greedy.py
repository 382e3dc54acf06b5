"""The most likely token."""

from __future__ import annotations

import torch


def greedy(logits: torch.Tensor) -> torch.Tensor:
    """(..., V) logits -> (...) int64, the most likely token.

    Ranks need no agreement: the vocabulary's shards are gathered, so every rank sees the same logits bit for bit.
    """
    return logits.argmax(dim=-1)
