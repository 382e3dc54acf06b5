"""The values of a counter event, which viewers draw as numbers and count as errors when they are anything else."""

from __future__ import annotations

from math import isfinite

import msgspec

from dsv4prof.trace.wire import NOT_JSON, decode_value


def numeric(args: bytes | msgspec.Raw) -> tuple[msgspec.Raw | None, int]:
    """(arguments with the numbers alone, how many values are none); None when they are no object that can be read.

    Text that says a number counts as one, as importers take it. Arguments that hold only numbers come back unchanged.
    """
    try:
        raws = msgspec.json.decode(args, type=dict[str, msgspec.Raw]) if len(args) else None
    except NOT_JSON:
        raws = None
    if raws is None:
        return None, 1
    kept = {name: raw for name, raw in raws.items() if _is_number(raw)}
    odd = len(raws) - len(kept)
    return msgspec.Raw(msgspec.json.encode(kept)) if odd else msgspec.Raw(bytes(args)), odd


def _is_number(raw: msgspec.Raw) -> bool:
    try:
        value = decode_value(raw)
        return not isinstance(value, bool) and isinstance(value, int | float | str) and isfinite(float(value))
    except (*NOT_JSON, ValueError, OverflowError):
        return False
