"""How many tokens a verify yields: the acceptance length of MTP speculative decoding, bonus token included."""

from __future__ import annotations

from dsv4prof.analysis.result import Analysis
from dsv4prof.model.finding import Finding
from dsv4prof.model.phase import Phase
from dsv4prof.model.report import Metric
from dsv4prof.rules import get
from dsv4prof.trace.index import TraceIndex
from dsv4prof.trace.steps import accepted_markers

KEY = "accept_length"


def analyze_mtp(index: TraceIndex) -> Analysis:
    """Tokens a request and verify, from the markers of the lowest rank that has any: every TP rank repeats them."""
    for rank in index.ranks:
        markers = accepted_markers(rank.slices)
        requests = sum(marker.requests for marker in markers)
        tokens = sum(marker.tokens for marker in markers)
        if requests:
            reason = f"{tokens:,} tokens for {requests:,} requests in {len(markers)} verifies, rank {rank.rank}"
            metric = Metric(KEY, "accept length", round(tokens / requests, 4), "tokens", reason)
            return Analysis(metrics=[metric], findings=[] if tokens >= requests else [_impossible(tokens, requests)])
    if any(phase.phase is Phase.TARGET_VERIFY for step in index.steps for phase in step.phases):
        return Analysis(metrics=[Metric(KEY, "accept length", None, "tokens", "the trace has no acceptance markers")])
    return Analysis()


def _impossible(tokens: int, requests: int) -> Finding:
    rule = get("DSV701")
    return Finding(
        code=rule.code,
        severity=rule.severity,
        message=f"{tokens:,} accepted tokens for {requests:,} requests: a verify gives each request at least one",
        evidence={"tokens": tokens, "requests": requests},
        cost_reason="not a matter of time",
        fingerprint=rule.code,
    )
