"""A conversation as plain values, whatever an API called its fields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class ToolCall:
    """A call that the model wrote, or wrote in an earlier turn. arguments: by parameter name, JSON values."""

    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Tool:
    """A function that the model may call. parameters: a JSON schema object, or None for a function without any."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class Message:
    """role: system, developer, user, assistant or tool. reasoning and calls belong to an assistant's turn.

    A tool's message holds the result of one call, in the order of the calls.
    """

    role: str
    content: str = ""
    reasoning: str = ""
    calls: tuple[ToolCall, ...] = ()
