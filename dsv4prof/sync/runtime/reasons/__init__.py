"""Which operators make the host wait, and why: one table for real device tensors and for shadows without a device.

`reasons_of` judges an operator as dispatch shows it. `named` gives the reasons of calls that dispatch never shows
(tolist, numpy, formatting, explicit waits), so that every layer uses the same words. `refined` says which form of the
catalogue a reason is, from the Python function in which the operator ran. `PendingUploads` keeps what a single call
cannot tell: how much is under way. Nothing here reads a value of a tensor, so nothing here waits; nothing needs torch.
"""

from __future__ import annotations

from dsv4prof.sync.runtime.reasons.named import named
from dsv4prof.sync.runtime.reasons.outer import refined
from dsv4prof.sync.runtime.reasons.pending import PendingUploads
from dsv4prof.sync.runtime.reasons.table import reasons_of

__all__ = ["PendingUploads", "named", "reasons_of", "refined"]
