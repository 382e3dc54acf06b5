"""Conversations in which somebody asks for a function and gets it, as the server would render them."""

from __future__ import annotations

from collections.abc import Sequence

from dsv4_engine.chat.markers import EOS, Marker, Part
from dsv4_engine.chat.messages import Message
from dsv4_engine.chat.render import render
from dsv4_engine.training.corpus.functions import Function
from dsv4_engine.training.corpus.stable import stable_number

WORDINGS = (
    "Write a Python function {name}({arguments}). {purpose}",
    "Please write {name}({arguments}) in Python. {purpose}",
    "I need a function {name}({arguments}): {purpose}",
    "How would you write {name}({arguments})? {purpose}",
    "Write {name}({arguments}).\n\n{purpose}",
    "{purpose} Call it {name}, with the arguments ({arguments}).",
    "Write a function for this: {purpose}",
)
_LONGEST_ANSWER = 1600
_LONGEST_ARGUMENTS = 120
_PURPOSE_LENGTHS = range(12, 241)
_TURNS_EVERY = 5


def conversations(functions: Sequence[Function]) -> list[tuple[Message, ...]]:
    """One for each documented function of a file; some ask for the next function in a second turn."""
    asked = [function for function in functions if _can_be_asked_for(function)]
    found: list[tuple[Message, ...]] = []
    for index, function in enumerate(asked):
        following = asked[index + 1 : index + 2] if index % _TURNS_EVERY == 0 else []
        found.append(tuple(message for each in (function, *following) for message in _turn(each)))
    return found


def rendered(messages: Sequence[Message]) -> tuple[Part, ...]:
    """A conversation that ends with an answer: what the server makes of the messages before it, the answer, the end."""
    *before, answer = messages
    return (*render(before, thinking=False), answer.content, Marker(EOS))


def _turn(function: Function) -> tuple[Message, Message]:
    wording = WORDINGS[stable_number(function.source) % len(WORDINGS)]
    question = wording.format(name=function.name, arguments=function.arguments, purpose=function.purpose)
    return Message(role="user", content=question), Message(role="assistant", content=function.source.rstrip("\n"))


def _can_be_asked_for(function: Function) -> bool:
    return (
        function.arguments is not None
        and len(function.arguments) <= _LONGEST_ARGUMENTS
        and not function.name.startswith("__")
        and len(function.purpose) in _PURPOSE_LENGTHS
        and len(function.source) <= _LONGEST_ANSWER
    )
