"""What of the TensorBoard plugin is known to fail: every endpoint was asked, over the traces of nine sources.

Data, not opinion: a slow test asks them again and compares.
"""

from __future__ import annotations

import msgspec

MEASURED_WITH = {
    "torch-tb-profiler": "0.4.3",
    "tensorboard": "2.21.0",
    "numpy": "2.4.6",
    "pandas": "3.1.1",
    "werkzeug": "3.1.9",
}


class Fault(msgspec.Struct, frozen=True):
    """An endpoint, the HTTP status of its answer, on which traces, and why. `seen` where a page asks for it anyway."""

    route: str
    status: int
    when: str
    why: str
    seen: bool = False


_HIP = "a ROCm trace with memory events"
_HIP_WHY = "the plugin knows no device type 6 (HIP), calls its device None and sorts that among names"
_NO_MEMORY = "a trace without memory events"
_NO_MEMORY_WHY = "it looks into a snapshot that is not there; the page offers no Memory view then"
_ALONE = "a run in which not every rank has collectives"
_ALONE_WHY = "there is no distributed profile; the page offers no Distributed view then"

FAULTS = (
    Fault("/memory_curve", 500, _HIP, _HIP_WHY, seen=True),
    Fault("/memory_events", 500, _HIP, _HIP_WHY, seen=True),
    Fault(
        "/operation/stack", 500, "every trace since stacks are recorded as Python frames",
        "no operator carries a call stack then; the page offers none",
    ),
    Fault("/memory", 500, _NO_MEMORY, _NO_MEMORY_WHY),
    Fault("/memory_curve", 500, _NO_MEMORY, _NO_MEMORY_WHY),
    Fault("/memory_events", 500, _NO_MEMORY, _NO_MEMORY_WHY),
    Fault("/module", 404, "a trace without Python frames", "there are no modules; the page offers no Module view then"),
    Fault("/distributed/gpuinfo", 404, _ALONE, _ALONE_WHY),
    Fault("/distributed/overlap", 404, _ALONE, _ALONE_WHY),
    Fault("/distributed/waittime", 404, _ALONE, _ALONE_WHY),
    Fault("/distributed/commops", 404, _ALONE, _ALONE_WHY),
)  # fmt: skip
# The page, not an endpoint: it waits for this address before it shows any view, the trace included.
CHARTS = "https://www.gstatic.com/charts/loader.js"


def notes() -> list[str]:
    """What a user will meet, in sentences."""
    seen: dict[tuple[str, str], list[str]] = {}
    for fault in FAULTS:
        if fault.seen:
            seen.setdefault((fault.when, fault.why), []).append(fault.route)
    version = MEASURED_WITH["torch-tb-profiler"]
    return [
        f"known of torch-tb-profiler {version}: its page loads {CHARTS} first; offline every view stays empty",
        *(f"known to fail: {' and '.join(routes)} on {when}: {why}" for (when, why), routes in seen.items()),
    ]
