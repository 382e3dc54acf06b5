r"""Prompts to serve where the user brings none: code and prose to be continued, from a line to several compressed
windows long.

A file of prompts is UTF-8 text with a line of `---` between two prompts. Blanks and empty lines around a prompt do not
count. Where they do, because the model is to go on after an indentation or on a new line, the prompt ends with a
backslash: it is taken away, and what stands in front of it stays.

    def mean(values):
        \
    ---
    Write a haiku.

holds `def mean(values):\n    ` and `Write a haiku.`
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from dsv4_engine.errors import EngineError

SEPARATOR = "---"
"""A line of its own between two prompts of a file."""
END_MARK = "\\"
"""At the end of a prompt: the blanks and line ends in front of it belong to the prompt."""


def load_prompts(path: Path | str | None = None) -> list[str]:
    """The prompts of a file, in order, or the bundled ones; EngineError for a file without any."""
    source = files("dsv4_engine") / "prompts.txt" if path is None else Path(path)
    try:
        text = source.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise EngineError(f"prompts in {source} cannot be read: {error}", hint="give a UTF-8 text file") from None
    prompts: list[list[str]] = [[]]
    for line in text.split("\n"):
        if line.strip() == SEPARATOR:
            prompts.append([])
        else:
            prompts[-1].append(line)
    stripped = ["\n".join(lines).strip().removesuffix(END_MARK) for lines in prompts]
    if not any(stripped):
        raise EngineError(f"{source} holds no prompt", hint=f"separate prompts by lines of {SEPARATOR}")
    return [prompt for prompt in stripped if prompt]
