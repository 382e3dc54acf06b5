"""8xx: faults of the device and hangs."""

from __future__ import annotations

from dsv4prof.model.finding import Severity
from dsv4prof.rules.rule import Rule

RULES = (
    Rule(
        code="DSV801",
        name="device-memory-fault",
        severity=Severity.ERROR,
        summary="the device touched memory that it must not, and the process died or lost its device",
        doc="The message comes late and names an address at best. The fault record says whose memory that was, alive "
        "or freed, and which launches were not known to be complete; the likeliest come first, each with its evidence. "
        "Between two markers more than one launch is open: the rerun that is printed makes each wait, so that one is "
        "left.",
    ),
    Rule(
        code="DSV802",
        name="device-assert",
        severity=Severity.ERROR,
        summary="a check inside a kernel failed on the device",
        doc="The assertion names the kernel and the line, not the tensor. The fault record names the launch that runs "
        "it and its arguments. On ROCm such checks are often compiled out, and the same mistake shows as DSV801.",
    ),
    Rule(
        code="DSV803",
        name="hang",
        severity=Severity.ERROR,
        summary="a step began and nothing moved any more",
        doc="The error that is seen is the timeout of whoever waited (a message queue, a remote call, a collective), a "
        "minute later and elsewhere. Look at the step that never ended, at what the device ran meanwhile, and at what "
        "changed before. A device synchronize, and so the stop of a profiler, would hang as well.",
        references=("vllm #51593", "vllm #41168"),
    ),
    Rule(
        code="DSV804",
        name="bad-step-metadata",
        severity=Severity.ERROR,
        summary="a length or offset of a step's metadata is below zero, read as unsigned, too long, or falls",
        doc="Padding slots of a graph's batch are the usual place. -1 there is harmless until a kernel reads it as an "
        "unsigned number and loops over, or indexes by, 4294967295. In tables of pages and slots -1 means none and is "
        "not judged.",
        fix="fill padding slots with 0 or 1, as the kernel asks, before the graph is replayed",
        references=("vllm #51593",),
    ),
    Rule(
        code="DSV805",
        name="rank-died",
        severity=Severity.ERROR,
        summary="a rank's process ended without a message of the device",
        doc="It was killed, crashed in host code or raised an error. The fault record says what it was doing; whether "
        "the device had a part in it is not known.",
    ),
)
