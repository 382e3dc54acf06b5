"""The one enum of serving phases. "target-extend" in public threads is `TARGET_VERIFY`."""

from __future__ import annotations

from enum import Enum


class Phase(str, Enum):
    """A part of a serving step. Building metadata is a span inside a phase, not a phase."""

    PREFILL = "prefill"
    DECODE = "decode"
    DRAFT = "draft"
    TARGET_VERIFY = "target_verify"
    DRAFT_EXTEND = "draft_extend"
    IDLE = "idle"
