"""A log of a thousand lines holds one that tells what happened: find the messages that speak of a fault or a hang."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from dsv4prof.faultrecord.clocks import time_of
from dsv4prof.faultrecord.fault_forms import AMD, BOTH, NOISE, NVIDIA, REASONS, XID_ACCESS, XID_ADDRESS, XIDS, Form
from dsv4prof.faultrecord.message import Message
from dsv4prof.faultrecord.timeout_forms import COLLECTIVES, DRIVERS, WAITERS

_FORMS = (*NVIDIA[:4], *AMD, *COLLECTIVES[:3], *NVIDIA[4:], *BOTH, *DRIVERS, *COLLECTIVES[3:], *WAITERS)
# Every form has one of these words: most lines of a log are passed over after one search.
_WORDS = re.compile(
    r"fault|error|assert|invalid __|xid|exception|aborting|status_|memory|nccl|timed? ?out|timeout|shm_broadcast|"
    r"no available|heart ?beat|health|dead|died|hang|reset|zmq|zeromq|queue|peer|remote process|timeout",
    re.IGNORECASE,
)
_RANK = re.compile(
    r"\[rank\s*(\d+)\]|\brank[=: ]+(\d+)\b|\bRank (\d+)\]|\b(?:TP|DP)(\d+)(?: |\])|Worker_TP(\d+)|\[(\d+)\]:", re.ASCII
)
_PID = re.compile(r"\bpid[=:' ]+(\d+)", re.IGNORECASE)
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
    lines = text.splitlines()
    found: dict[tuple[Any, ...], Message] = {}
    for number in range(len(lines)):
        message = _message(lines, number, source)
        if message is None:
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


def _message(lines: Sequence[str], number: int, source: str) -> Message | None:
    line = lines[number].rstrip()
    if not _WORDS.search(line) or NOISE.search(line):
        return None
    for form in _FORMS:
        match = form.pattern.search(line)
        if match is not None:
            fields = {key: value for key, value in match.groupdict().items() if value is not None}
            _follow(form, lines, number, fields)
            return _made(form, line, number, source, fields)
    return None


def _follow(form: Form, lines: Sequence[str], number: int, fields: dict[str, str]) -> None:
    """What the lines after a message add to it, up to the next one of its kind."""
    for line in lines[number + 1 : number + 1 + _FOLLOWING] if form.follow else ():
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
    pid = fields.pop("pid", None) or next(iter(_PID.findall(line)), None)
    return Message(
        kind=kind,
        role=role,
        vendor=form.vendor or _vendor(fields.get("code", "")),
        text=line.strip(),
        source=source,
        line=number + 1,
        rank=_rank(line),
        pid=int(pid) if pid else None,
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


def _rank(line: str) -> int | None:
    match = _RANK.search(line)
    return int(next(group for group in match.groups() if group is not None)) if match else None
