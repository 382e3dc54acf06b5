"""Log-probabilities of chosen tokens and of the most likely ones, from the model's own logits.

They are those of the model, before penalties, temperature and filters, so they compare across requests (vLLM's
`raw_logprobs`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from dsv4_engine.request import TokenLogprobs
from dsv4_engine.sampling.rows import LogprobRows


@dataclass(frozen=True, kw_only=True)
class LogprobValues:
    """chosen: (L,) float32. top, ids: (L, K) most likely first, float32 and int64."""

    chosen: torch.Tensor
    top: torch.Tensor
    ids: torch.Tensor


def logprob_values(logits: torch.Tensor, tokens: torch.Tensor, rows: LogprobRows) -> LogprobValues:
    """(R, V) float32 raw logits and (R,) int64 tokens -> values of the L rows that want them."""
    logprobs = torch.log_softmax(logits[rows.rows], dim=1)
    most = min(rows.most, logits.shape[1])
    top = logprobs.topk(most, dim=1)
    chosen = logprobs.gather(1, tokens[rows.rows][:, None])[:, 0]
    return LogprobValues(chosen=chosen, top=top.values, ids=top.indices)


@dataclass(frozen=True, kw_only=True)
class HostLogprobs:
    """The same as Python numbers."""

    chosen: Sequence[float]
    top: Sequence[Sequence[float]]
    ids: Sequence[Sequence[int]]

    def of(self, wanted: tuple[int, int] | None, count: int) -> tuple[TokenLogprobs, ...]:
        """Those of a request's first `count` rows; empty where it did not ask (`LogprobRows.wanted`)."""
        if wanted is None:
            return ()
        first, most = wanted
        return tuple(
            TokenLogprobs(
                logprob=self.chosen[row],
                top=tuple(zip(self.ids[row][:most], self.top[row][:most], strict=True)),
            )
            for row in range(first, first + count)
        )
