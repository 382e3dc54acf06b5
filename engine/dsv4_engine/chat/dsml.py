"""DSML, in which DeepSeek-V4 writes tool calls: tags whose names begin with a token that no ordinary text contains.

A parameter of kind string="true" holds its text as it is, nothing escaped; any other value is JSON. It looks like XML
and is none.
"""

from __future__ import annotations

import json
import re
from typing import Any

from dsv4_engine.chat.markers import DSML, Marker, Part
from dsv4_engine.chat.messages import ToolCall

OPEN = f"<{DSML}tool_calls>"
CLOSE = f"</{DSML}tool_calls>"
GAP = "\n\n"
"""Stands between an answer's text and its calls, and belongs to neither."""

_INVOKE = re.compile(rf'\s*<{DSML}invoke name="([^"\n]+)">(.*?)</{DSML}invoke>', re.DOTALL)
_PARAMETER = re.compile(
    rf'\s*<{DSML}parameter name="([^"\n]+)" string="(true|false)">(.*?)</{DSML}parameter>', re.DOTALL
)
_FORBIDDEN = re.compile(r'["\n]')


def render_calls(calls: tuple[ToolCall, ...]) -> tuple[Part, ...]:
    """The block of an assistant's calls; ValueError for a name that no tag can hold."""
    parts: list[Part] = ["<", Marker(DSML), "tool_calls>\n"]
    for call in calls:
        parts += ["<", Marker(DSML), f'invoke name="{_name(call.name)}">\n']
        for name, value in call.arguments.items():
            text = isinstance(value, str)
            shown = value if text else to_json(value)
            parts += ["<", Marker(DSML), f'parameter name="{_name(name)}" string="{to_json(text)}">', shown]
            parts += ["</", Marker(DSML), "parameter>\n"]
        parts += ["</", Marker(DSML), "invoke>\n"]
    return (*parts, "</", Marker(DSML), "tool_calls>")


def parse_calls(block: str) -> tuple[ToolCall, ...] | None:
    """The calls of what stands between OPEN and CLOSE; None where it is not well formed, or holds no call."""
    calls: list[ToolCall] = []
    position = 0
    while (match := _INVOKE.match(block, position)) is not None:
        arguments = _parse_arguments(match[2])
        if arguments is None:
            return None
        calls.append(ToolCall(name=match[1], arguments=arguments))
        position = match.end()
    return tuple(calls) if calls and not block[position:].strip() else None


def to_json(value: object) -> str:
    """One line of JSON that keeps every script readable. ValueError for NaN and infinities, which JSON has not."""
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _parse_arguments(inner: str) -> dict[str, Any] | None:
    found: dict[str, Any] = {}
    position = 0
    while (match := _PARAMETER.match(inner, position)) is not None:
        name, is_text, value = match[1], match[2] == "true", match[3]
        if name in found:
            return None
        try:
            found[name] = value if is_text else json.loads(value)
            # What Python reads and no client could: NaN, 1e999, half a surrogate pair, more depth than can be written.
            to_json({name: found[name]}).encode()
        except (ValueError, RecursionError):
            return None
        position = match.end()
    return found if not inner[position:].strip() else None


def _name(name: str) -> str:
    if not name or _FORBIDDEN.search(name):
        raise ValueError(f"{name!r} cannot be the name of a function or parameter")
    return name
