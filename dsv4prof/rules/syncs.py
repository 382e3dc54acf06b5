"""1xx: operations in which the host waits for the device."""

from __future__ import annotations

from dsv4prof.model.finding import Severity
from dsv4prof.rules.rule import Rule

_WAIT = (
    "The call returns only when all work queued before it on the stream is done. The device then runs dry, and stays "
    "idle until the host has launched the next kernels. "
)

RULES = (
    Rule(
        code="DSV101",
        name="scalar-read",
        severity=Severity.WARNING,
        summary="a device scalar is read by the host",
        doc=_WAIT
        + "Seen as aten::_local_scalar_dense. Keep the value on the device, or keep a mirror of it on the host.",
    ),
    Rule(
        code="DSV102",
        name="tolist",
        severity=Severity.WARNING,
        summary="a device tensor becomes a Python list",
        doc=_WAIT + "One blocking copy for the whole tensor. Build the list on the host, where its values come from.",
    ),
    Rule(
        code="DSV103",
        name="blocking-copy-to-host",
        severity=Severity.WARNING,
        summary="a blocking copy from the device to the host",
        doc=_WAIT
        + "Copy with non_blocking=True into pinned memory, record an event, and read the result only after waiting "
        "for it.",
    ),
    Rule(
        code="DSV104",
        name="numpy",
        severity=Severity.WARNING,
        summary="a device tensor becomes a NumPy array",
        doc=_WAIT + "Treat as DSV103: copy without blocking, and read after the event.",
    ),
    Rule(
        code="DSV105",
        name="data-dependent-shape",
        severity=Severity.WARNING,
        summary="the shape of a result depends on values on the device",
        doc=_WAIT
        + "nonzero, a boolean mask as index, unique, bincount and repeat_interleave without output_size read a count "
        "back. "
        "Use a form with a static shape. For repeat_interleave pass output_size, but only the exact sum of the "
        "repeats, "
        "known on the host: another value leaves rows uninitialised or writes out of bounds (sglang #29202).",
    ),
    Rule(
        code="DSV106",
        name="explicit-synchronize",
        severity=Severity.WARNING,
        summary="the program waits for the device on purpose",
        doc=_WAIT + "Let streams wait for events instead of the host; wait on the host only where a value is used.",
    ),
    Rule(
        code="DSV107",
        name="truth-of-tensor",
        severity=Severity.WARNING,
        summary="the truth of a device tensor is asked by the host",
        doc=_WAIT + "if, while, assert, not, and, or, in, torch.equal and allclose. Use torch.where or _assert_async.",
    ),
    Rule(
        code="DSV108",
        name="upload",
        severity=Severity.WARNING,
        summary="a blocking upload from unpinned host memory",
        doc=_WAIT
        + "torch.tensor(list, device=), a list or CPU tensor as index, a Python scalar assigned to an element. "
        "Use torch.full, a cached tensor, or pinned memory with non_blocking=True.",
    ),
    Rule(
        code="DSV109",
        name="formatting-a-tensor",
        severity=Severity.WARNING,
        summary="a device tensor is formatted as text",
        doc=_WAIT
        + "An f-string formats even where the log level is off. Log shapes, or format only behind a level check.",
    ),
    Rule(
        code="DSV110",
        name="device-value-as-size",
        severity=Severity.WARNING,
        summary="a device value is used as a size, a bound or a Python number",
        doc=_WAIT
        + "Slices, ranges and factory functions read the value back. Use a number known on the host, or a mask.",
    ),
    Rule(
        code="DSV111",
        name="allocation-stall",
        severity=Severity.WARNING,
        summary="the allocator or the pinning of memory stalls a hot path",
        doc="cudaFree and hipFree wait for the device; pinning 8 MiB takes over 10 ms. Allocate before the hot path.",
    ),
    Rule(
        code="DSV112",
        name="value-read-twice",
        severity=Severity.WARNING,
        summary="the same device value is read twice",
        doc=_WAIT + "Read it once and keep the host value.",
    ),
)
