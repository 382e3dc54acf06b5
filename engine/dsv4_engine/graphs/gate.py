"""Whether a phase runs from a captured graph or eagerly, decided in one place and always with the reason.

sglang #29202 found a draft-extend that ran eagerly in silence because its gate had not heard of the backend. So the
reason is part of the answer, and profiles show it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dsv4_engine.phase import Phase


@dataclass(frozen=True, kw_only=True)
class GraphDecision:
    """`captured` or eager, and why."""

    captured: bool
    reason: str


@dataclass(frozen=True, kw_only=True)
class BatchShape:
    """What a captured graph would be keyed by."""

    requests: int
    rows: int


def graph_decision(phase: Phase, backend: str, environment: Mapping[str, str], shape: BatchShape) -> GraphDecision:
    """Decide for one phase of one step. `backend` names the attention backend; `environment` holds the switches.

    The engine has no graph runner yet, on any device, so the answer does not depend on what is asked.
    """
    return GraphDecision(captured=False, reason="no graph runner on this device")
