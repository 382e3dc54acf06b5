"""DSV109: a device tensor is formatted as text."""

from __future__ import annotations

from dsv4prof.model.finding import Severity
from dsv4prof.rules.rule import WAIT, Rule

RULE = Rule(
    code="DSV109",
    name="formatting-a-tensor",
    severity=Severity.WARNING,
    summary="a device tensor is formatted as text",
    doc=WAIT + "An f-string formats even where the log level is off, and a tensor of more than one element costs about "
    "fifteen waits.",
    source="a device tensor in an f-string, in str, repr, print, format or %, or as an argument of a log call. Shapes,"
    " dtypes and devices are known to the host.",
    run="set_sync_debug_mode warns, about fifteen times a tensor.",
    trace="many short copies to the host within one Python call, often under a logging function.",
    bad='def show(seq_lens: torch.Tensor) -> None:\n    logger.debug(f"lens {seq_lens}")',
    good='def show(seq_lens: torch.Tensor) -> None:\n    logger.debug("batch of %d", seq_lens.shape[0])',
    fix="log shapes, or pass the tensor as a %s argument behind a level check",
    unsafe="a %s argument still formats when the level is on: a server that runs at that level pays",
)
