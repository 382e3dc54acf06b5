"""Chrome trace JSON as it lies in a file: what a strict, typed read gives, before any meaning is added.

`ts` and `dur` are decimals, because a float at epoch scale is off by up to a quarter of a microsecond.
"""

from __future__ import annotations

from decimal import Decimal

import msgspec

ABSENT = msgspec.Raw()
MAX_NS = 2**62
# Older msgspec lets the codec's own error through.
NOT_JSON = (msgspec.DecodeError, UnicodeDecodeError)


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


_EVENTS = msgspec.json.Decoder(list[WireEvent])
_EVENT = msgspec.json.Decoder(WireEvent)
_RAWS = msgspec.json.Decoder(list[msgspec.Raw])
_OBJECT = msgspec.json.Decoder(dict[str, msgspec.Raw])


def nanoseconds(value: Decimal | None) -> int | None:
    """Integer nanoseconds of decimal microseconds; None when absent, not finite or beyond 146 years."""
    if value is None or not value.is_finite() or abs(value) > MAX_NS // 1000:
        return None
    return round(value * 1000)


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
    except NOT_JSON:
        return None
