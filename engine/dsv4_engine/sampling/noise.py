"""Random numbers that are a function of (seed, position, token) alone, in integer tensor operations.

A generator with a state would tie a request's tokens to its neighbours in the batch, to chunking and to how often a
position was computed. Here position p of a request with seed s draws, for token v, the (v + 1)-th number of the
SplitMix64 stream (Steele, Lea, Flood, OOPSLA 2014) whose start is itself a mix of s and p. So the same token falls
whether a position is computed alone, in a verify, again after a retraction, or on another rank.
"""

from __future__ import annotations

import torch

_GAMMA = 0x9E3779B97F4A7C15
_MIX_1 = 0xBF58476D1CE4E5B9
_MIX_2 = 0x94D049BB133111EB
_MANTISSA = 52


def signed(value: int) -> int:
    """Any integer modulo 2**64, as int64 holds it."""
    return ((value & (2**64 - 1)) ^ (1 << 63)) - (1 << 63)


def _shifted(bits: torch.Tensor, by: int) -> torch.Tensor:
    """Logical shift right: int64's own keeps the sign."""
    return (bits >> by) & ((1 << (64 - by)) - 1)


def mix(bits: torch.Tensor) -> torch.Tensor:
    """SplitMix64's output function on int64 tensors; products wrap."""
    bits = (bits ^ _shifted(bits, 30)) * signed(_MIX_1)
    bits = (bits ^ _shifted(bits, 27)) * signed(_MIX_2)
    return bits ^ _shifted(bits, 31)


def stream_starts(seeds: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """(R,) int64 starts, one for each (seed, position); seeds are mixed first, so that neighbours share nothing."""
    return mix(mix(seeds + signed(_GAMMA)) + positions * signed(_GAMMA))


def uniform(seeds: torch.Tensor, positions: torch.Tensor, count: int) -> torch.Tensor:
    """(R,) int64 seeds and positions -> (R, count) float64, uniform on 2**52 midpoints strictly between 0 and 1."""
    steps = torch.arange(1, count + 1, device=seeds.device) * signed(_GAMMA)
    bits = mix(stream_starts(seeds, positions)[:, None] + steps)
    return (_shifted(bits, 64 - _MANTISSA).double() + 0.5) * 2.0**-_MANTISSA


def gumbel(seeds: torch.Tensor, positions: torch.Tensor, count: int) -> torch.Tensor:
    """(R, count) float64 standard Gumbel noise: the argmax of logits plus this follows their softmax."""
    return uniform(seeds, positions, count).log_().neg_().log_().neg_()
