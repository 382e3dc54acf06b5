"""Guess the next tokens with the MTP layer, each guess fed by the one before (DeepSeek-V4 report, section on MTP)."""

from __future__ import annotations

import torch

from dsv4_engine.batching import DecodeInputs
from dsv4_engine.execution import Model
from dsv4_engine.phase import Phase
from dsv4_engine.sampling import greedy


def draft_chain(
    model: Model, inputs: DecodeInputs, first_draft: torch.Tensor, streams: torch.Tensor, *, num_drafts: int
) -> torch.Tensor:
    """Extend the relayed guess (B,) and its MTP streams (B, hc, D) to a chain of drafts -> (B, num_drafts) int64.

    Guess i + 1 is made at position start + i by the MTP layer's own streams, since the target's are not known yet. The
    keys that these forwards leave behind are approximate; draft-extend replaces those of accepted drafts.
    """
    drafts = [first_draft]
    for offset in range(num_drafts - 1):
        batch = inputs.window(Phase.DRAFT, drafts[-1][:, None], offset=offset)
        output = model.forward_mtp(batch, streams, logits_rows=None)
        drafts.append(greedy(output.logits))
        streams = output.streams
    return torch.stack(drafts, dim=1)
