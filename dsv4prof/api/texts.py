"""What was written, to be read: the end of each prompt, and how the model went on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from dsv4prof.model.report import Section
from dsv4prof.target.outputs import OUTPUTS_NAME, RequestOutput

KEY = "texts"
_GOES_ON, _ENDED = "»", "∎"
# Of a prompt, enough to know it again and to see what is continued.
_PROMPT_LINES, _PROMPT_CHARACTERS = 2, 160


def text_sections(outputs: Sequence[RequestOutput]) -> list[Section]:
    """One section, where texts were asked for; whole, however long they are."""
    if not outputs:
        return []
    title = f"texts ({_GOES_ON} where the model goes on, {_ENDED} where it ended by itself; all in {OUTPUTS_NAME})"
    return [Section(key=KEY, title=title, lead="\n".join(map(_block, outputs)))]


def text_facts(outputs: Sequence[RequestOutput]) -> dict[str, Any]:
    """The same for machines, whole prompts and token ids included."""
    return {"outputs": msgspec.to_builtins(list(outputs))} if outputs else {}


def _block(output: RequestOutput) -> str:
    """The request's number in front of its first line, a bar in front of the others."""
    text = _prompt_end(output.prompt) + _GOES_ON + output.text + (_ENDED if output.ended else "")
    lines = [_printable(line) for line in text.split("\n")]
    number = f"{output.request:>4}"
    return "\n".join(f"{number if place == 0 else '':4} | {line}".rstrip() for place, line in enumerate(lines))


def _prompt_end(prompt: str) -> str:
    lines = prompt.rstrip().split("\n")
    left_out = "\n".join(lines[:-_PROMPT_LINES])
    # What is left out ends with a line, whose end is left out as well.
    end = prompt[len(left_out) + 1 :] if left_out else prompt
    end = end.lstrip("\n")
    return end if len(end) <= _PROMPT_CHARACTERS else "…" + end[-_PROMPT_CHARACTERS:]


def _printable(line: str) -> str:
    """A model may write anything; a terminal obeys some of it."""
    return "".join(c if c.isprintable() or c == "\t" else c.encode("unicode_escape").decode() for c in line)
