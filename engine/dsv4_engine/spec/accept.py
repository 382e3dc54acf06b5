"""How much of a draft chain the target model agrees with."""

from __future__ import annotations

import torch

from dsv4_engine.errors import EngineError
from dsv4_engine.sampling.noise import uniform


def accept_chain(drafts: torch.Tensor, predicted: torch.Tensor) -> torch.Tensor:
    """drafts (B, k) against the target's tokens (B, k + 1) -> (B,) int64 tokens gained, 1 to k + 1.

    Draft i is accepted while it and all before it equal the target's token for its place; the target's token after the
    last accepted draft is gained in any case. `sampling.sampler` says why that is exact for drawn tokens too. The host
    reads nothing.
    """
    matches = (drafts == predicted[:, :-1]).to(torch.int64)
    return matches.cumprod(dim=1).sum(dim=1) + 1


def require_accept_len(mean: float, *, num_drafts: int) -> None:
    """EngineError on a mean accept length that no verify of so many drafts can have."""
    if num_drafts == 0:
        raise EngineError("simulate_accept_len needs drafts", hint="set num_drafts to 1 or more")
    if not 1 <= mean <= num_drafts + 1:
        raise EngineError(f"simulate_accept_len is {mean}", hint=f"choose 1 to {num_drafts + 1}, the rows of a verify")


def simulated_accept_lens(seeds: torch.Tensor, starts: torch.Tensor, *, mean: float) -> torch.Tensor:
    """(B,) int64 seeds and tokens cached -> (B,) int64 lengths of the given mean, whatever the drafts are.

    For benchmarks that separate kernel time from draft quality; the text is meaningless. Each length is the mean
    rounded down or up, by a number that depends on seed and position alone, so that a run can be repeated.
    """
    whole = int(mean)
    return whole + (uniform(seeds, starts, 1)[:, 0] < mean - whole).to(torch.int64)
