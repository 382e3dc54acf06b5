"""How far a number may lie from a golden one, and when a wrong token was too close to call.

Rounding errors grow with the numbers that are added, so a bound that fits one model is too narrow for another whose
streams are larger. Each bound holds up to the magnitude that its quantity has in the reference set, tests/golden/
dsv4_tiny, where correct implementations were measured against each other, and grows in proportion beyond it.
"""

# dsv4prof: allow-file[DSV102,DSV103] compares results offline, never in a serving step
from __future__ import annotations

from collections.abc import Iterable

import torch

NUMBERS = 1e-4
STATISTICS = 5e-6
COLLAPSED = 3e-5
"""Mistakes in epsilons and in the doubly stochastic mix hide below 1e-4 in logits, not in the quantities themselves."""

_AT_REFERENCE = {"comb": STATISTICS, "post": STATISTICS, "router_weights": STATISTICS, "collapsed": COLLAPSED}

REFERENCE_MAGNITUDES = {
    "logits": 9.09,
    "last_streams": 18.1,
    "greedy_logits": 8.95,
    "mtp_logits": 9.46,
    "mtp_last_streams": 14.6,
    "mtp_chain_logits": 8.07,
    "trace streams_out": 18.7,
    "trace attn_hc.collapsed": 48.9,
    "trace ffn_hc.collapsed": 50.0,
    "trace attn_hc.comb": 0.908,
    "trace ffn_hc.comb": 0.900,
    "trace attn_hc.post": 1.98,
    "trace ffn_hc.post": 1.99,
    "trace attn_out": 1.48,
    "trace moe_out": 2.59,
    "trace router_weights": 1.34,
    "trace compressed_kv": 4.85,
    "trace logits": 8.00,
    "quant logits": 8.86,
}
"""Largest absolute value of each quantity in tests/golden/dsv4_tiny, rounded up to three digits."""

_SUMMED_INTO_COLLAPSED = ("trace streams_out", "trace attn_out", "trace moe_out")
"""Their rounding errors reach `collapsed` whole, even where the numbers themselves cancel in it."""


class Bounds:
    """Absolute bounds by quantity, for the golden tensors of one set."""

    def __init__(self, tensors: Iterable[tuple[str, torch.Tensor]]) -> None:
        """tensors: quantity and values, a quantity once for each place where it occurs."""
        self._magnitudes: dict[str, float] = {}
        for quantity, values in tensors:
            if quantity in REFERENCE_MAGNITUDES and values.numel():
                # What is not finite is wrong, whatever the bound, and must not make it infinite.
                largest = float(values.double().abs().nan_to_num(nan=0.0, posinf=0.0).max())
                self._magnitudes[quantity] = max(self._magnitudes.get(quantity, 0.0), largest)

    def of(self, quantity: str) -> float:
        """The largest difference of a correct engine."""
        at_reference = _AT_REFERENCE.get(quantity.replace(" ", ".").rpartition(".")[2], NUMBERS)
        sources = (quantity, *(_SUMMED_INTO_COLLAPSED if quantity.endswith("collapsed") else ()))
        return at_reference * max(1.0, *map(self._growth, sources))

    def _growth(self, quantity: str) -> float:
        """The quantity's magnitude as a multiple of the reference set's; 0 where there is none to compare."""
        magnitude = self._magnitudes.get(quantity)
        return magnitude / REFERENCE_MAGNITUDES[quantity] if magnitude is not None else 0.0


def close_call(
    actual: torch.Tensor, expected: torch.Tensor | None, logits: torch.Tensor | None, bound: float
) -> str:
    """What excuses a wrong token in part: golden logits that lie closer together than numbers may differ.

    actual, expected: (n,) tokens. logits: (n, V), the golden ones that `expected` was chosen from. Empty where the
    first wrong token was no close call.
    """
    if expected is None or logits is None or actual.shape != expected.shape:
        return ""
    different = (actual.cpu() != expected).nonzero()
    if not len(different) or int(different[0]) >= len(logits) or logits.shape[-1] < 2:
        return ""
    first = int(different[0])
    best, second = logits[first].double().topk(2).values.tolist()
    margin = best - second
    return f"margin {margin:.1e} at token {first}, within the bound {bound:.0e} of logits" if margin < bound else ""
