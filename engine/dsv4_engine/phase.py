"""The phases of a serving step, by the names that a profile shows."""

from __future__ import annotations

from enum import Enum


class Phase(str, Enum):
    """A part of a step. The verify of a draft chain by the target model is `TARGET_VERIFY`."""

    PREFILL = "prefill"
    DECODE = "decode"
    DRAFT = "draft"
    TARGET_VERIFY = "target_verify"
    DRAFT_EXTEND = "draft_extend"
    IDLE = "idle"
