"""Hazards as findings, which every report, baseline and format understands."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dsv4prof import rules
from dsv4prof.model.finding import Finding, Location
from dsv4prof.model.syncs import Frame
from dsv4prof.sync.runtime.hazards.hazard import Hazard, Side, near


def findings_of(hazards: Sequence[Hazard]) -> list[Finding]:
    """Worst first: by severity, then by how often."""
    found = [finding_of(hazard) for hazard in hazards]
    return sorted(found, key=lambda finding: (-finding.severity.rank, finding.code, -finding.evidence["seen"]))


def finding_of(hazard: Hazard) -> Finding:
    """Its place is where the second side came too early; the first side is in `evidence`, with both stacks."""
    rule = rules.get(hazard.code)
    return Finding(
        code=hazard.code,
        severity=rule.severity,
        message=_message(hazard),
        location=location_of(hazard.second.stack),
        evidence={
            "trouble": hazard.trouble,
            "seen": hazard.seen,
            "orders": hazard.order,
            **({"first": _facts(hazard.first)} if hazard.first else {}),
            "second": _facts(hazard.second),
            **({"buffer": _memory(hazard)} if hazard.memory else {}),
            **hazard.facts,
        },
        cost_reason="a hazard costs no time until it happens",
        fix=hazard.order,
        fingerprint=_fingerprint(hazard),
    )


def location_of(stack: Sequence[Frame]) -> Location | None:
    """The innermost line, below the working directory where it is."""
    if not stack:
        return None
    return Location(file=shown(stack[0].file), line=stack[0].line, function=stack[0].function)


def shown(file: str) -> str:
    try:
        return str(Path(file).relative_to(Path.cwd()))
    except (ValueError, OSError):
        return file


def place(side: Side) -> str:
    """`aten::copy_ at staging.py:92 for plan.py:88`: the line, and the first one outside its file that led to it."""
    where = location_of(side.stack)
    if where is None:
        return side.op
    outer = near(side.stack)[-1]
    led = f" for {Path(outer.file).name}:{outer.line}" if outer.file != side.stack[0].file else ""
    return f"{side.op} at {where.file}:{where.line}{led}"


def _message(hazard: Hazard) -> str:
    if hazard.trouble == "output-size":
        given, actual = hazard.facts["given"], hazard.facts["actual"]
        return f"{hazard.sentence}: {given:,} was given and the sum is {actual:,}"
    if hazard.first is None:
        return hazard.sentence
    text = (
        f"{hazard.sentence}: {place(hazard.first)}{_on(hazard.first)}, then {place(hazard.second)}{_on(hazard.second)}"
    )
    if hazard.memory is not None:
        text += f", on {hazard.memory.high - hazard.memory.low:,} bytes of {hazard.memory.place} memory"
    return text


def _on(side: Side) -> str:
    if side.stream is None:
        return " on the host"
    return " on the default stream" if side.stream == 0 else f" on stream {side.stream:#x}"


def _facts(side: Side) -> dict[str, Any]:
    return {
        "op": side.op,
        "does": side.does,
        "stream": side.stream,
        "step": side.step,
        "region": side.region,
        "stack": [f"{shown(frame.file)}:{frame.line} {frame.function}" for frame in side.stack],
    }


def _memory(hazard: Hazard) -> dict[str, Any]:
    memory = hazard.memory
    assert memory is not None
    return {
        "address": f"{memory.address:#x}",
        "bytes": memory.nbytes,
        "place": memory.place,
        "from": memory.low,
        "to": memory.high,
        "made": [f"{shown(frame.file)}:{frame.line} {frame.function}" for frame in memory.made],
    }


def _fingerprint(hazard: Hazard) -> str:
    """Free of lines and addresses: the rule, and the functions and operators of both sides."""
    sides = [side for side in (hazard.first, hazard.second) if side is not None]
    words = [hazard.code, hazard.trouble]
    for side in sides:
        words += [side.op, side.stack[0].function if side.stack else ""]
    return hashlib.sha256("\0".join(words).encode()).hexdigest()[:16]
