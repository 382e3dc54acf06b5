"""A list of lengths with a NaN in it is still a list of lengths: read its numbers, and keep what is none as a text."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

Value = int | str | None
"""A whole number; the text of what is none ("NaN"); None where the log has no value."""

# Servers spell what is no number in several ways; JSON itself has none.
_SPELLED = {"nan": "NaN", "inf": "Infinity", "infinity": "Infinity", "-inf": "-Infinity", "-infinity": "-Infinity"}
_NO_NUMBERS = frozenset(_SPELLED.values())
_MOST_TEXT = 40
_INTEGER = re.compile(r"[+-]?\d{1,20}")


def keep_numbers(lists: dict[str, tuple[Value, ...]], name: str, values: Sequence[object]) -> None:
    """Keep a list that is one of whole numbers, whatever single values of it are."""
    found = tuple(map(_value, values))
    whole = sum(isinstance(each, int) for each in found)
    missing = sum(each is None or each in _NO_NUMBERS for each in found)
    # A list of means or of names has a whole number now and then.
    if (whole or missing) and len(found) - whole - missing < max(whole, 1) and found.count(None) < len(found):
        lists[name] = found


def _value(value: object) -> Value:
    """A whole number, or the text of what is none."""
    if isinstance(value, float):
        if not math.isfinite(value):
            return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        return int(value) if value.is_integer() else str(value)
    if isinstance(value, bool) or value is None:
        return None if value is None else str(value).lower()
    if isinstance(value, int):
        return value
    if isinstance(value, str):
        return int(value) if _INTEGER.fullmatch(value) else _SPELLED.get(value.lower(), value[:_MOST_TEXT])
    return "a list" if isinstance(value, list) else "an object"
