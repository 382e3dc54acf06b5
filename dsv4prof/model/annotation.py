"""The names under which steps, phases and spans appear in a trace: written by a target, read by analyses.

A record_function name is the only thing that survives every profiler and every vendor, so the facts travel in it:
`dsv4.step#12 kind=decode requests=4 rows=16`, `dsv4.phase target_verify requests=4 rows=16 graph=eager`,
`dsv4.span attach_prefill_meta`, `dsv4.accepted requests=4 tokens=9` (a marker without length).
Values are words of letters, digits, `_`, `.` and `-` only: quotes and control characters break Kineto's JSON.
"""

from __future__ import annotations

import re
from typing import Literal

import msgspec

Kind = Literal["step", "phase", "span", "accepted"]
_HEAD = re.compile(r"^dsv4\.(step#(?P<index>\d+)|phase (?P<phase>\w+)|span (?P<span>[\w.\-]+)|accepted)(?= |$)")
_FIELD = re.compile(r" ([a-z_]+)=([\w.\-]+)")
_MAX_DIGITS = 18
_UNSAFE = re.compile(r"[^\w.\-]+", re.ASCII)


class Annotation(msgspec.Struct, frozen=True):
    """A parsed name. `subject` is the step's index, the phase or the span's name; empty for `accepted`."""

    kind: Kind
    subject: str
    fields: dict[str, str] = {}

    def integer(self, key: str) -> int | None:
        value = self.fields.get(key)
        return None if value is None else whole_number(value)


def whole_number(text: str) -> int | None:
    """The number that digits in a name stand for; None for other text, and for more digits than any count has.

    Python refuses to convert some thousands of digits, so a damaged name must not get that far.
    """
    return int(text) if text.isdecimal() and len(text) <= _MAX_DIGITS else None


def _word(value: object) -> str:
    return _UNSAFE.sub("_", str(value)) or "_"


def format_annotation(kind: Kind, subject: str = "", /, **fields: object) -> str:
    """The name to give to record_function. Characters that a trace file cannot hold become `_`."""
    heads = {"step": f"step#{_word(subject)}", "accepted": "accepted"}
    head = heads.get(kind, f"{kind} {_word(subject)}")
    return f"dsv4.{head}" + "".join(f" {key}={_word(value)}" for key, value in fields.items())


def parse_annotation(name: str) -> Annotation | None:
    """The facts in a name, or None when it is not one of ours."""
    match = _HEAD.match(name)
    if match is None:
        return None
    fields = {m[1]: m[2] for m in _FIELD.finditer(name, match.end())}
    for kind, group in (("step", "index"), ("phase", "phase"), ("span", "span")):
        if match[group] is not None:
            return Annotation(kind=kind, subject=match[group], fields=fields)  # type: ignore[arg-type]
    return Annotation(kind="accepted", subject="", fields=fields)
