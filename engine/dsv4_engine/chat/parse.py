"""A model's answer taken apart while it is being written: reasoning, text, tool calls.

Nothing is told that a later character could take back: an end of text that may become a marker waits, and a call is
told when its whole block has been read and is well formed. A block that is not stays what it was, text.
"""

from __future__ import annotations

from dataclasses import dataclass

from dsv4_engine.chat.dsml import CLOSE, GAP, OPEN, parse_calls
from dsv4_engine.chat.held import first_match, held_suffix
from dsv4_engine.chat.markers import END_THINK
from dsv4_engine.chat.messages import ToolCall

_OPENINGS = (GAP + OPEN, OPEN)


@dataclass(frozen=True, kw_only=True)
class Parsed:
    """What became certain. Any of the three may be empty."""

    reasoning: str = ""
    content: str = ""
    calls: tuple[ToolCall, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.reasoning or self.content or self.calls)


class AnswerParser:
    """One answer, from the first character that the model wrote.

    thinking: the prompt ended with <think>, so that the answer begins inside the reasoning. tools: look for calls;
    without it a block of calls is text like any other.
    """

    def __init__(self, *, thinking: bool, tools: bool) -> None:
        self._thinking = thinking
        self._tools = tools
        self._opening: str | None = None
        self._pending = ""

    def push(self, text: str, *, last: bool = False) -> Parsed:
        """Take in more of the answer. last: nothing follows, so that nothing waits any longer."""
        self._pending += text
        reasoning, content = "", ""
        calls: tuple[ToolCall, ...] = ()
        if self._thinking:
            reasoning = self._take_reasoning(last=last)
        while not self._thinking and (self._pending or (last and self._opening is not None)):
            before = (len(self._pending), self._opening)
            if self._opening is None:
                content += self._take_content(last=last)
            else:
                more, found = self._take_block(last=last)
                content, calls = content + more, (*calls, *found)
            if (len(self._pending), self._opening) == before:
                break
        return Parsed(reasoning=reasoning, content=content, calls=calls)

    def _take_reasoning(self, *, last: bool) -> str:
        end = self._pending.find(END_THINK)
        if end >= 0:
            taken, self._pending = self._pending[:end], self._pending[end + len(END_THINK) :]
            self._thinking = False
            return taken
        return self._take(0 if last else held_suffix(self._pending, (END_THINK,)))

    def _take_content(self, *, last: bool) -> str:
        openings = _OPENINGS if self._tools else ()
        match = first_match(self._pending, openings)
        if match is None:
            return self._take(0 if last else held_suffix(self._pending, openings))
        place, self._opening = match
        taken, self._pending = self._pending[:place], self._pending[place + len(self._opening) :]
        return taken

    def _take_block(self, *, last: bool) -> tuple[str, tuple[ToolCall, ...]]:
        assert self._opening is not None
        end = self._pending.find(CLOSE)
        if end < 0 and not last:
            return "", ()
        block = self._pending if end < 0 else self._pending[:end]
        calls = None if end < 0 else parse_calls(block)
        self._pending = "" if end < 0 else self._pending[end + len(CLOSE) :]
        opening, self._opening = self._opening, None
        if calls is not None:
            return "", calls
        return opening + block + (CLOSE if end >= 0 else ""), ()

    def _take(self, held: int) -> str:
        """All that is pending but its last `held` characters."""
        cut = len(self._pending) - held
        taken, self._pending = self._pending[:cut], self._pending[cut:]
        return taken
