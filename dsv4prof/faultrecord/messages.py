"""A log of a thousand lines holds one that tells what happened: find the messages that speak of a fault or a hang."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from dsv4prof.faultrecord.clocks import time_of
from dsv4prof.faultrecord.fault_forms import AMD, BOTH, NOISE, NVIDIA, REASONS, XID_ACCESS, XID_ADDRESS, XIDS, Form
from dsv4prof.faultrecord.message import PAGE_BYTES, Message
from dsv4prof.faultrecord.prefixes import bare, pid_of, plain, rank_of
from dsv4prof.faultrecord.timeout_forms import COLLECTIVES, DRIVERS, WAITERS

_FORMS = (*NVIDIA[:5], *AMD, *COLLECTIVES[:3], *NVIDIA[5:], *BOTH, *DRIVERS, *COLLECTIVES[3:], *WAITERS)
# Every form has one of these: a server writes millions of lines, and almost all of them have none.
_WORDS = (
    "fault", "error", "assert", "invalid __", "xid", "exception", "abort", "status_", "memory critical", "timeout",
    "timed out", "timed-out", "timedout", "time out", "out of memory", "oom-kill", "illegal ", "misaligned",
    "unspecified launch", "cuda failure", "shm_broadcast", "no available", "no message", "resource temporarily",
    "eagain", "zmq", "missed", "lost", "stale", "fail", "dead", "died", "not respond", "gpu hang", "gpu reset",
    "by peer", "remote process", "last enqueued", "segfault", "sigsegv", "sigbus", "gpuassert", "connection was",
    "broken pipe", "uncorrectable", "queues preemption", "queue preemption", "deadline", "stopped, reason",
    "stopped reason",
)  # fmt: skip
# Of a long line (a server's arguments, a traceback in one string) only what stands around such a word is looked at.
_BEFORE, _WINDOW = 600, 2000
_NUMBER = re.compile(r"\d+")
_MOST_SHAPES = 50_000
_FOLLOWING = 14
_UNITS = {"ms": 1e-3, "milliseconds": 1e-3, "m": 60.0}
# Sure and precise first: the message that a report begins with.
_TELLING = (
    "memory-fault", "page-fault", "sanitizer", "assert", "warp-exception", "illegal-access", "misaligned",
    "illegal-instruction", "launch-failure", "launch-timeout", "memory-error", "gpu-hang", "device-lost", "link-error",
    "no-kernel", "out-of-memory", "queue-abort", "hsa-error", "library", "device-error", "collective-error",
    "host-crash",
)  # fmt: skip
_ROLES = ("cause", "symptom", "consequence")


def read_messages(text: str, *, source: str = "") -> list[Message]:
    """The messages in a log, in its order; equal ones once, with `times`.

    `source` names the log in a report. Lines that are no message are passed over, whatever they are.
    """
    lines = text.split("\n")
    found: dict[tuple[Any, ...], Message] = {}
    silent: set[str] = set()
    for number, line in enumerate(lines):
        lower = line.lower()
        word = next((each for each in _WORDS if each in lower), None)
        if word is None:
            continue
        # Lines that differ in numbers alone are alike: one that is no message speaks for millions.
        shape = _NUMBER.sub("0", lower) if len(line) < _WINDOW else ""
        if shape in silent:
            continue
        message = _message(lines, number, lower.index(word), source)
        if message is None:
            if shape and len(silent) < _MOST_SHAPES:
                silent.add(shape)
            continue
        key = (message.kind, message.kernel, message.place, message.reason, message.address, message.rank,
               message.code, message.sequence, message.role)  # fmt: skip
        first = found.get(key)
        found[key] = message if first is None else msgspec.structs.replace(first, times=first.times + 1)
    return list(found.values())


def telling(messages: Iterable[Message]) -> list[Message]:
    """The most telling first: causes before symptoms before consequences, precise kinds before vague ones."""

    def order(message: Message) -> tuple[int, bool, int]:
        known = message.kind in _TELLING
        kind = _TELLING.index(message.kind) if known else len(_TELLING)
        return _ROLES.index(message.role), message.address is None and message.kind.endswith("fault"), kind

    return sorted(messages, key=order)


def is_timeout(message: Message) -> bool:
    """Whether somebody waited and gave up."""
    return (message.kind.endswith("-timeout") and message.role == "consequence") or message.kind in _WAITING


_WAITING = ("engine-dead", "collective-progress", "peer-lost")


def _message(lines: Sequence[str], number: int, at: int, source: str) -> Message | None:
    line = plain(lines[number])
    if len(line) > _WINDOW:
        line = line[max(0, at - _BEFORE) :][:_WINDOW]
    if NOISE.search(line):
        return None
    said = bare(line)
    asserts = "ssertion" in said
    for form in _FORMS:
        match = form.pattern.search(said) if asserts or form.kind != "assert" else None
        if match is not None:
            fields = {key: value for key, value in match.groupdict().items() if value is not None}
            if form.page_bytes == PAGE_BYTES and match.end() == len(said) and _is_cut(fields):
                del fields["address"]
            _follow(form, lines, number, fields)
            return _made(form, line, number, source, fields)
    return None


def _is_cut(fields: dict[str, str]) -> bool:
    """Whether the line ends within the address: one that is exact to a page ends with zeros."""
    return "address" in fields and _number(fields["address"]) % PAGE_BYTES != 0


def _follow(form: Form, lines: Sequence[str], number: int, fields: dict[str, str]) -> None:
    """What the lines after a message add to it, up to the next one of its kind; other ranks' lines may lie between."""
    rank = rank_of(plain(lines[number])) if form.follow else None
    for raw in lines[number + 1 : number + 1 + _FOLLOWING] if form.follow else ():
        line = plain(raw)
        if rank is not None and rank_of(line) not in (None, rank):
            continue
        if form.stop is not None and form.stop.search(line):
            return
        for pattern in form.follow:
            if (match := pattern.search(line)) is not None:
                for key, value in match.groupdict().items():
                    if value is not None:
                        fields.setdefault(key, value)


def _made(form: Form, line: str, number: int, source: str, fields: dict[str, str]) -> Message:
    kind, role = form.kind, form.role
    if kind == "xid":
        kind, role = _xid(fields)
    elif kind in ("device-error", "queue-abort", "hsa-error", "collective-error"):
        said = fields.get("reason", "") + " " + fields.get("code", "")
        kind = next((name for name, pattern in REASONS if pattern.search(said)), kind)
    waited = fields.pop("waited_s", None)
    unit = fields.get("code", "") if waited is not None else ""
    if waited is not None:
        fields.pop("code", None)
    numbers: dict[str, Any] = {
        key: _number(fields.pop(key))
        for key in ("address", "allocation", "allocation_bytes", "after_bytes", "sequence", "enqueued", "completed")
        if key in fields
    }
    access = fields.pop("access", "")
    pid = fields.pop("pid", None)
    return Message(
        kind=kind,
        role=role,
        vendor=form.vendor or _vendor(fields.get("code", "")),
        text=line.strip(),
        source=source,
        line=number + 1,
        rank=rank_of(line),
        pid=int(pid) if pid else pid_of(line),
        time_s=time_of(line),
        page_bytes=form.page_bytes,
        access={"0x0": "read", "0x1": "write"}.get(access.lower(), access.lower()),
        waited_s=None if waited is None else float(waited) * _scale(unit),
        **numbers,
        **{key: value.strip() for key, value in fields.items()},  # type: ignore[arg-type]
    )


def _xid(fields: dict[str, str]) -> tuple[str, Any]:
    said = fields.get("reason", "")
    for pattern in (XID_ADDRESS, XID_ACCESS):
        if (match := pattern.search(said)) is not None:
            fields.update(match.groupdict())
    if "illigned" in said or "misaligned" in said.lower():
        return "misaligned", "cause"
    return XIDS.get(int(fields["code"]), ("xid", "symptom"))


def _number(text: str) -> int:
    plain = text.replace("_", "").replace(",", "")
    return 0 if plain == "(nil)" else int(plain, 16 if plain.lower().startswith("0x") else 10)


def _scale(unit: str) -> float:
    lower = unit.lower()
    return _UNITS.get(lower, 60.0 if lower.startswith("min") else 1.0)


def _vendor(code: str) -> Any:
    lower = code.lower()
    return "amd" if lower.startswith(("hip", "hsa", "roc", "miopen")) else "nvidia" if lower.startswith("cu") else ""
