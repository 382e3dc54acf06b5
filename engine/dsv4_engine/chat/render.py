"""A conversation as the prompt that DeepSeek-V4 was trained to continue.

The format (begin token, system text, turns opened by a marker, answers closed by the end token, thinking between its
own markers, results of tools inside the user's turn) is that of the published checkpoints. The sentences that explain
tools and effort to the model are this engine's own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dsv4_engine.chat.dsml import GAP, render_calls, to_json
from dsv4_engine.chat.markers import ASSISTANT, DSML, END_THINK, EOS, THINK, USER, Marker, Part
from dsv4_engine.chat.messages import Message, Tool

_RESULT = "<tool_result>{}</tool_result>"
_MAX_EFFORT = (
    "Think as long and as carefully as the problem allows: look at it from several sides, check every step, "
    "and test the conclusion before you answer.\n\n"
)


def render(
    messages: Sequence[Message], *, tools: Sequence[Tool] = (), thinking: bool, max_effort: bool = False
) -> tuple[Part, ...]:
    """The prompt behind the begin token, up to where the model's next answer begins.

    thinking: open the answer with <think>, so that the model reasons first, else with </think>. Reasoning of earlier
    turns is left out, unless tools are given: calls then follow from it. max_effort: a sentence in front asks for more.
    ValueError for tool or parameter names that the format cannot hold.
    """
    lead: list[Part] = [_MAX_EFFORT] if max_effort and thinking else []
    system, turns = _split_system(messages)
    lead.append(system)
    if tools:
        lead += [GAP if system else "", *_render_tools(tools)]
    keep_from = 0 if tools else _last_user(turns)
    parts: list[Part] = [*lead]
    for index, message in enumerate(turns):
        if message.role == "assistant":
            parts += _render_answer(message, thinking=thinking and index >= keep_from)
        else:
            before = turns[index - 1].role if index else "assistant"
            parts += _render_asking(message, opens=before == "assistant")
    parts += [Marker(ASSISTANT), Marker(THINK if thinking else END_THINK)]
    return tuple(part for part in parts if part != "")


def _split_system(messages: Sequence[Message]) -> tuple[str, list[Message]]:
    """System texts come first whatever their place: the format has no turn for them."""
    system = GAP.join(message.content for message in messages if message.role == "system")
    return system, [message for message in messages if message.role != "system"]


def _last_user(turns: Sequence[Message]) -> int:
    return max((index for index, turn in enumerate(turns) if turn.role in ("user", "developer")), default=0)


def _render_asking(message: Message, *, opens: bool) -> list[Part]:
    """A user's text or a tool's result; several in a row make one turn."""
    text = _RESULT.format(message.content) if message.role == "tool" else message.content
    return [Marker(USER), text] if opens else [GAP, text]


def _render_answer(message: Message, *, thinking: bool) -> Iterator[Part]:
    yield Marker(ASSISTANT)
    if thinking:
        yield from (Marker(THINK), message.reasoning)
    yield from (Marker(END_THINK), message.content)
    if message.calls:
        yield GAP
        yield from render_calls(message.calls)
    yield Marker(EOS)


def _render_tools(tools: Sequence[Tool]) -> Iterator[Part]:
    """What the model has to know of its tools: how to write a call, and one JSON schema a line."""
    yield "## Tools\n\nYou can call the functions listed below. A call is written in this form:\n\n"
    yield from _tag("tool_calls", "\n")
    yield from _tag('invoke name="FUNCTION"', "\n")
    yield from _tag('parameter name="PARAMETER" string="true|false"', "VALUE")
    yield from _tag("/parameter", "\n")
    yield from _tag("/invoke", "\n")
    yield from _tag("/tool_calls", "\n\n")
    yield (
        'Texts stand as they are, with string="true"; numbers, booleans, lists and objects stand as JSON, with '
        'string="false". One block may hold several calls. Finish thinking before you write it, and use only these '
        "functions and parameters:\n\n"
    )
    yield "\n".join(to_json(_schema(tool)) for tool in tools)


def _tag(inner: str, after: str) -> tuple[Part, ...]:
    slash = "/" if inner.startswith("/") else ""
    return (f"<{slash}", Marker(DSML), f"{inner.removeprefix('/')}>{after}")


def _schema(tool: Tool) -> dict[str, object]:
    return {
        "name": tool.name,
        **({"description": tool.description} if tool.description else {}),
        "parameters": tool.parameters or {"type": "object", "properties": {}},
    }
