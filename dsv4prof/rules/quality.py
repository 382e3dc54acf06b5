"""4xx: what a trace does not hold, so that nobody draws conclusions from a hole."""

from __future__ import annotations

from dsv4prof.model.finding import Severity
from dsv4prof.rules.rule import Rule

RULES = (
    Rule(
        code="DSV401",
        name="trace-ends-early",
        severity=Severity.WARNING,
        summary="a rank's file was cut; its whole events were kept",
        doc="The process died or the disk was full while the file was written. Times and counts of that rank cover "
        "only a "
        "part of the window. Record it again, or leave the rank out.",
    ),
    Rule(
        code="DSV402",
        name="events-left-out",
        severity=Severity.WARNING,
        summary="events of a rank could not be used",
        doc="Damaged text, no valid time, no duration. Each reason is counted; arrows without a partner, which "
        "Kineto writes "
        "for calls that launch nothing, are not reported here.",
    ),
    Rule(
        code="DSV403",
        name="no-device-records",
        severity=Severity.WARNING,
        summary="the device was used, but the trace holds no device records",
        doc="Launches are there and kernels are not, so every figure about the device is unknown, not zero. Start the "
        "profiler before the first HIP or CUDA call, and check that the ROCm and torch builds match.",
    ),
    Rule(
        code="DSV404",
        name="trace-mended",
        severity=Severity.WARNING,
        summary="text or values of a rank's file were mended, doubtful or left aside",
        doc="Several writers produce text that is no JSON (control characters, nan as a number), broken checksums, or "
        "values that cannot be true. What could be read without a guess was read, and the sentence says what was done. "
        "No event is lost by it: those are DSV402.",
    ),
)
