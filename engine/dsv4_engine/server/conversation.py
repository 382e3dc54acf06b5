"""The messages and tools of a chat request, checked, as the conversation that is rendered for the model."""

from __future__ import annotations

from typing import Any

from dsv4_engine.chat.markers import Part
from dsv4_engine.chat.messages import Message, Tool, ToolCall
from dsv4_engine.chat.render import render
from dsv4_engine.server.decoding import decode_object, shown
from dsv4_engine.server.errors import ApiError
from dsv4_engine.server.fields import ChatFields

_ROLES = ("system", "developer", "user", "assistant", "tool")
_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
_AT_ONCE = ("none", "minimal")
_MAX = ("xhigh", "max")
_MESSAGE_FIELDS = frozenset(
    ("role", "content", "name", "tool_calls", "tool_call_id", "reasoning_content", "reasoning", "refusal", "audio",
     "annotations", "function_call", "parsed")
)  # fmt: skip
_TEMPLATE_FIELDS = ("thinking", "enable_thinking")


def thinks(fields: ChatFields) -> bool:
    """Whether the model is to reason first: as chat_template_kwargs says, else as reasoning_effort, else not."""
    kwargs = fields.chat_template_kwargs or {}
    for name, value in kwargs.items():
        if name not in _TEMPLATE_FIELDS:
            raise ApiError(
                f"chat_template_kwargs: unknown key {shown(name)}; known: {', '.join(_TEMPLATE_FIELDS)}",
                param="chat_template_kwargs",
            )
        if not isinstance(value, bool):
            raise ApiError(f"chat_template_kwargs.{name} has to be true or false", param="chat_template_kwargs")
    effort = fields.reasoning_effort
    if effort is not None and effort not in _EFFORTS:
        raise ApiError(
            f"reasoning_effort is {shown(effort)}, not one of {', '.join(_EFFORTS)}", param="reasoning_effort"
        )
    said = next((kwargs[name] for name in _TEMPLATE_FIELDS if name in kwargs), None)
    return bool(said) if said is not None else effort is not None and effort not in _AT_ONCE


def tools_of(fields: ChatFields) -> tuple[Tool, ...]:
    """The functions that the model is told of: none for tool_choice none. ApiError on a choice that would force one."""
    tools = tuple(_tool(given, f"tools[{index}]") for index, given in enumerate(fields.tools or ()))
    choice = fields.tool_choice
    if choice not in (None, "auto", "none"):
        raise ApiError("tool_choice: only auto and none are supported, since output is not forced", param="tool_choice")
    if choice == "auto" and not tools:
        raise ApiError("tool_choice is for requests with tools", param="tool_choice")
    return () if choice == "none" else tools


def conversation(fields: ChatFields, *, thinking: bool, tools: tuple[Tool, ...]) -> tuple[Part, ...]:
    """The prompt's parts behind the begin token; ApiError (400) names the message at fault."""
    if not fields.messages:
        raise ApiError("messages is empty", param="messages")
    messages = [_message(given, f"messages[{index}]") for index, given in enumerate(fields.messages)]
    if messages[-1].role == "assistant":
        raise ApiError("the last message is the assistant's own, and there is nothing to answer", param="messages")
    try:
        return render(messages, tools=tools, thinking=thinking, max_effort=fields.reasoning_effort in _MAX)
    except ValueError as error:
        raise ApiError(str(error), param="messages") from None


def _message(given: dict[str, Any], place: str) -> Message:
    unknown = next((name for name in given if name not in _MESSAGE_FIELDS), None)
    if unknown is not None:
        raise ApiError(f"{place}: unknown field {shown(unknown)}", param="messages", code="unknown_field")
    role = given.get("role")
    if role not in _ROLES:
        raise ApiError(f"{place}.role is {shown(role)}, not one of {', '.join(_ROLES)}", param="messages")
    calls = _calls(given.get("tool_calls"), f"{place}.tool_calls")
    if given.get("function_call") is not None or given.get("audio") is not None:
        raise ApiError(f"{place}: function_call and audio are not supported; use tool_calls", param="messages")
    if calls and role != "assistant":
        raise ApiError(f"{place}: only an assistant's message has tool_calls", param="messages")
    content = _text(given.get("content"), f"{place}.content")
    if content is None and not (role == "assistant" and (calls or given.get("refusal"))):
        raise ApiError(f"{place}.content is missing", param="messages", code="missing_field")
    reasoning = _text(given.get("reasoning_content") or given.get("reasoning"), f"{place}.reasoning_content")
    refusal = _text(given.get("refusal"), f"{place}.refusal")
    return Message(role=role, content=content or refusal or "", reasoning=reasoning or "", calls=calls)


def _text(given: object, place: str) -> str | None:
    """A text, or a list of text parts joined; None where nothing was said."""
    if given is None or isinstance(given, str):
        return given
    if not isinstance(given, list):
        raise ApiError(f"{place} has to be a string or a list of text parts", param="messages")
    texts: list[str] = []
    for index, part in enumerate(given):
        kind = part.get("type") if isinstance(part, dict) else None
        if kind not in ("text", "refusal"):
            raise ApiError(f"{place}[{index}]: the model reads text parts only, not {shown(kind)}", param="messages")
        text = part.get(kind)
        if not isinstance(text, str):
            raise ApiError(f"{place}[{index}].{kind} has to be a string", param="messages")
        texts.append(text)
    return "".join(texts)


def _calls(given: object, place: str) -> tuple[ToolCall, ...]:
    if given is None:
        return ()
    if not isinstance(given, list):
        raise ApiError(f"{place} has to be a list", param="messages")
    return tuple(_call(item, f"{place}[{index}]") for index, item in enumerate(given))


def _call(given: object, place: str) -> ToolCall:
    function = given.get("function") if isinstance(given, dict) else None
    name = function.get("name") if isinstance(function, dict) else None
    arguments = function.get("arguments") if isinstance(function, dict) else None
    if not isinstance(name, str):
        raise ApiError(f"{place}.function.name has to be a string", param="messages")
    if isinstance(arguments, str):
        try:
            arguments = decode_object(arguments.encode()) if arguments.strip() else {}
        except ApiError:
            arguments = None
    if not isinstance(arguments, dict):
        raise ApiError(f"{place}.function.arguments has to be a JSON object, as text", param="messages")
    return ToolCall(name=name, arguments=arguments)


def _tool(given: dict[str, Any], place: str) -> Tool:
    function = given.get("function")
    if given.get("type") != "function" or not isinstance(function, dict):
        raise ApiError(f'{place} has to be {{"type": "function", "function": ...}}', param="tools")
    name, description, parameters = (function.get(key) for key in ("name", "description", "parameters"))
    if not isinstance(name, str) or not name:
        raise ApiError(f"{place}.function.name has to be a string", param="tools")
    if description is not None and not isinstance(description, str):
        raise ApiError(f"{place}.function.description has to be a string", param="tools")
    if parameters is not None and not isinstance(parameters, dict):
        raise ApiError(f"{place}.function.parameters has to be a JSON schema object", param="tools")
    if function.get("strict"):
        raise ApiError(f"{place}.function.strict is not supported: output is not constrained", param="tools")
    return Tool(name=name, description=description, parameters=parameters)
