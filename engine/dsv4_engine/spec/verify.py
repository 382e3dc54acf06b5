"""Let the target model judge a whole draft chain in one forward pass."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from dsv4_engine.batching import DecodeInputs
from dsv4_engine.execution import Model
from dsv4_engine.phase import Phase
from dsv4_engine.sampling import greedy
from dsv4_engine.spec.accept import accept_chain


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """predicted: (B, n) int64, the target's token after each row. accept_lens: (B,) int64, how many of them count.

    streams: (B * n, hc, D), the target's.
    """

    predicted: torch.Tensor
    accept_lens: torch.Tensor
    streams: torch.Tensor


def verify_chain(model: Model, inputs: DecodeInputs, drafts: torch.Tensor) -> Verdict:
    """Run the newest token and its (B, k) drafts, n = k + 1 rows a request, through the target model."""
    ids = torch.cat((inputs.newest[:, None], drafts), dim=1)
    output = model.forward_target(inputs.window(Phase.TARGET_VERIFY, ids), logits_rows=None)
    predicted = greedy(output.logits).view_as(ids)
    return Verdict(predicted=predicted, accept_lens=accept_chain(drafts, predicted), streams=output.streams)
