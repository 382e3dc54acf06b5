"""What a rule is: a code that never changes its meaning, a name, how much it matters, and the text that explains it."""

from __future__ import annotations

import msgspec

from dsv4prof.model.finding import Severity


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """`summary` is one line; `doc` says why it matters, how it is recognised and what to do.

    The rest is there for rules that `dsv4prof rule` explains at length: how each detector recognises it (`source`,
    `run`, `trace`; empty where it does not), code that has the fault and code that has not, the fix, when that fix is
    unsafe, and where the fault was met.
    """

    code: str
    name: str
    severity: Severity
    summary: str
    doc: str
    source: str = ""
    run: str = ""
    trace: str = ""
    bad: str = ""
    good: str = ""
    fix: str = ""
    unsafe: str = ""
    references: tuple[str, ...] = ()


WAIT = (
    "The call returns only when all work queued before it on the stream is done. The device then runs dry, and stays "
    "idle until the host has launched the next kernels: that idle time, not the time blocked, is what it costs. "
)
"""Why a host sync hurts: how every rule of the 1xx begins."""

MEASURE = (
    "Time blocked is not the gain: in one case halving it won 1 % of wall clock (diffusers #14589). Look at the GPU "
    "idle time after the wait first."
)
