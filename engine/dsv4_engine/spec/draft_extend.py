"""Bring the MTP layer's cache up to what was accepted, and make the first guess of the next step."""

from __future__ import annotations

import torch

from dsv4_engine.batching import DecodeInputs
from dsv4_engine.execution import Model
from dsv4_engine.phase import Phase
from dsv4_engine.sampling import greedy
from dsv4_engine.spec.verify import Verdict


def draft_extend(model: Model, inputs: DecodeInputs, verdict: Verdict) -> tuple[torch.Tensor, torch.Tensor]:
    """Run all n rows of the verify through the MTP layer -> next first draft (B,) and its streams (B, hc, D).

    Every request has n rows whatever was accepted, so that shapes are known without a read. Rows past the accepted run
    leave keys at positions that the next step writes again before anything can see them.
    """
    requests, width = verdict.predicted.shape
    first_rows = torch.arange(requests, device=verdict.predicted.device) * width
    last_accepted = first_rows + verdict.accept_lens - 1
    batch = inputs.window(Phase.DRAFT_EXTEND, verdict.predicted)
    output = model.forward_mtp(batch, verdict.streams, logits_rows=last_accepted)
    return greedy(output.logits), output.streams[last_accepted]
