"""Prompts to serve where the user brings none: code and prose, from a word to several compressed windows long."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from dsv4_engine.errors import EngineError

SEPARATOR = "---"
"""A line of its own between two prompts of a file."""


def load_prompts(path: Path | str | None = None) -> list[str]:
    """The prompts of a UTF-8 text file, in order, or the bundled ones; EngineError for a file without any."""
    source = files("dsv4_engine") / "prompts.txt" if path is None else Path(path)
    try:
        text = source.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise EngineError(f"prompts in {source} cannot be read: {error}", hint="give a UTF-8 text file") from None
    prompts: list[list[str]] = [[]]
    for line in text.splitlines():
        if line.strip() == SEPARATOR:
            prompts.append([])
        else:
            prompts[-1].append(line)
    stripped = ["\n".join(lines).strip() for lines in prompts]
    if not any(stripped):
        raise EngineError(f"{source} holds no prompt", hint=f"separate prompts by lines of {SEPARATOR}")
    return [prompt for prompt in stripped if prompt]
