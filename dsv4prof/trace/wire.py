"""Chrome trace JSON as it lies in a file: what a strict, typed read gives, before any meaning is added.

`ts` and `dur` are decimals, because a float at epoch scale is off by up to a quarter of a microsecond.
"""

from __future__ import annotations

import re
from codecs import getincrementaldecoder
from decimal import Decimal
from typing import Any

import msgspec

ABSENT = msgspec.Raw()
MAX_NS = 2**62
_MAX_US = MAX_NS // 1000
# What a reader raises, at a depth that depends on how deep its own caller stands, is decided here instead.
MAX_DEPTH = 100
# So short a text cannot nest that deep.
SHALLOW = 2 * MAX_DEPTH
_CHUNK = 1 << 20
_BRACKET = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]]', re.DOTALL)
# Older msgspec lets the codec's own error through; too deep a nesting ends in a RecursionError.
NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class WireEvent(msgspec.Struct, gc=False):
    """One element of `traceEvents`. Empty `args` means absent; `ts` and `dur` are microseconds."""

    ph: str = ""
    name: str = ""
    cat: str = ""
    pid: int | str = 0
    tid: int | str = 0
    ts: Decimal | None = None
    dur: Decimal | None = None
    id: int | str | None = None
    s: str = "t"
    bp: str | None = None
    args: msgspec.Raw = ABSENT


class _LooseEvent(msgspec.Struct, gc=False):
    """The same with values of kinds that no profiler writes, but other tools' rewriting does: 1.0 for 1, null for none.
    """

    ph: str = ""
    name: str | int | float | None = ""
    cat: str | int | float | None = ""
    pid: int | str | float | None = 0
    tid: int | str | float | None = 0
    ts: Decimal | None = None
    dur: Decimal | None = None
    id: int | str | float | None = None
    s: str | None = "t"
    bp: str | None = None
    args: msgspec.Raw = ABSENT

    def strict(self) -> WireEvent:
        return WireEvent(
            self.ph, _word(self.name), _word(self.cat), _place(self.pid), _place(self.tid), self.ts, self.dur,
            None if self.id is None else _place(self.id), self.s or "t", self.bp, self.args,
        )  # fmt: skip


def _place(value: int | str | float | None) -> int | str:
    if isinstance(value, float):
        return int(value) if value.is_integer() else str(value)
    return 0 if value is None else value


def _word(value: str | int | float | None) -> str:
    return "" if value is None else str(value)


_EVENTS = msgspec.json.Decoder(list[WireEvent])
_EVENT = msgspec.json.Decoder(WireEvent)
_LOOSE = msgspec.json.Decoder(_LooseEvent)
_RAWS = msgspec.json.Decoder(list[msgspec.Raw])
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])


def nanoseconds(value: Decimal | None, max_us: int = _MAX_US) -> int | None:
    """Integer nanoseconds of decimal microseconds; None when absent, not finite or beyond a limit (146 years)."""
    if value is None or not value.is_finite() or not -max_us <= value <= max_us:
        return None
    return round(value * 1000)


def check_utf8(data: bytes) -> None:
    """Raise UnicodeDecodeError unless the bytes are UTF-8: a reader that skips a value does not look at its text."""
    if data.isascii():
        return
    decoder = getincrementaldecoder("utf-8")()
    for start in range(0, len(data), _CHUNK):
        decoder.decode(data[start : start + _CHUNK])
    decoder.decode(b"", final=True)


def too_deep(raw: bytes | msgspec.Raw) -> bool:
    """Whether a value nests deeper than MAX_DEPTH, so that another reader may fail at it."""
    if len(raw) <= SHALLOW:
        return False
    text = bytes(raw)
    if text.count(b"[") + text.count(b"{") <= MAX_DEPTH:
        return False
    depth = 0
    for token in _BRACKET.finditer(text):
        mark = text[token.start()]
        depth += (mark in b"{[") - (mark in b"}]")
        if depth > MAX_DEPTH:
            return True
    return False


def decode_value(raw: bytes | msgspec.Raw) -> Any:
    """Any JSON value as Python's. Raises ValueError when a number in it is out of range or it nests too deep."""
    if too_deep(raw):
        raise ValueError(f"nested deeper than {MAX_DEPTH}")
    return msgspec.json.decode(raw)


def split_document(data: bytes) -> dict[str, msgspec.Raw]:
    """The top-level keys with their values unread. A bare array is taken as `traceEvents`.

    Raises msgspec.DecodeError when the text is not JSON, msgspec.ValidationError when it is no object or array.
    """
    if data.lstrip()[:1] == b"[":
        return {"traceEvents": msgspec.Raw(data)}
    return _OBJECT.decode(data)


def decode_events(raw: bytes | msgspec.Raw) -> tuple[list[WireEvent], int]:
    """Events of an array, and how many elements had no usable shape (a list as name, an object as pid)."""
    try:
        return _EVENTS.decode(raw), 0
    except msgspec.ValidationError:
        events = [event for element in _RAWS.decode(raw) if (event := decode_event(element)) is not None]
        return events, len(_RAWS.decode(raw)) - len(events)


def decode_event(raw: bytes | msgspec.Raw) -> WireEvent | None:
    """One event, or None when it is damaged or has no usable shape."""
    try:
        return _EVENT.decode(raw)
    except msgspec.ValidationError:
        pass
    except NOT_JSON:
        return None
    try:
        return _LOOSE.decode(raw).strict()
    except NOT_JSON:
        return None


def is_text_fault(raw: bytes | msgspec.Raw) -> bool:
    """Whether one event fails as text, not by its shape: then the file's text must be mended before it is read."""
    try:
        _EVENT.decode(raw)
    except msgspec.ValidationError:
        return False
    except NOT_JSON:
        return True
    return False


def fault_of(raw: bytes | msgspec.Raw) -> str | None:
    """Why one event cannot be read, in the reader's words; None when it can."""
    try:
        _EVENT.decode(raw)
    except NOT_JSON as error:
        return str(error)
    return None
