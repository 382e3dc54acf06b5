"""The strings that structure a DeepSeek-V4 conversation; in its vocabulary each is one token."""

from __future__ import annotations

from dataclasses import dataclass

BOS = "<｜begin▁of▁sentence｜>"
EOS = "<｜end▁of▁sentence｜>"
USER = "<｜User｜>"
ASSISTANT = "<｜Assistant｜>"
THINK = "<think>"
END_THINK = "</think>"
DSML = "｜DSML｜"

MARKERS = (USER, ASSISTANT, THINK, END_THINK, DSML, EOS)
"""All that a rendered conversation may hold behind its begin token."""

SPOKEN = (THINK, END_THINK, DSML)
"""Those that a model writes into its answer, and that whoever parses the answer needs to see."""


@dataclass(frozen=True)
class Marker:
    """A structuring string, as opposed to a user's text that merely reads like one."""

    text: str


Part = Marker | str


def plain_text(parts: tuple[Part, ...]) -> str:
    """The parts as one text, in which a marker cannot be told from a text that reads like it."""
    return "".join(part.text if isinstance(part, Marker) else part for part in parts)
