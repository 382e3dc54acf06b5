"""DSV106: the program waits for the device on purpose."""

from __future__ import annotations

from dsv4prof.model.finding import Severity
from dsv4prof.rules.rule import WAIT, Rule

RULE = Rule(
    code="DSV106",
    name="explicit-synchronize",
    severity=Severity.WARNING,
    summary="the program waits for the device on purpose",
    doc=WAIT
    + "An explicit wait is often left from debugging or timing, or stands for an order between streams that the "
    "device could keep by itself.",
    source="`torch.cuda.synchronize()`, `event.synchronize()`, `stream.synchronize()` and `dist.barrier()`.",
    run="device and event waits are not warned of by torch; wrappers round them, or the GPU trace callbacks, see "
    "them. The warning of dist.barrier goes to C++ stderr alone.",
    trace="cudaDeviceSynchronize, cudaEventSynchronize, cudaStreamSynchronize, and the hip names on ROCm. A query of "
    "an event or a stream is no wait, though Kineto gives it a cuda_sync record.",
    bad="with torch.cuda.stream(side):\n    y = f(x)\ntorch.cuda.synchronize()\nz = g(y)",
    good="with torch.cuda.stream(side):\n    y = f(x)\ntorch.cuda.current_stream().wait_stream(side)\nz = g(y)",
    fix="let streams wait for events instead of the host; wait on the host only where a value is used, and as late "
    "as possible",
    unsafe="a wait before a buffer is freed by other means than torch's allocator, or before a peer reads memory, may "
    "be needed: DSV203 and DSV204 say what to look for",
    references=("sglang #29202",),
)
