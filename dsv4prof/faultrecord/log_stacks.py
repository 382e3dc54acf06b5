"""A process that is aborted prints where its Python threads were, into the log that its driver's message is in."""

from __future__ import annotations

import re

from dsv4prof.faultrecord.prefixes import bare, plain, rank_of
from dsv4prof.faultrecord.stacks import ThreadStack, read_stacks

_FATAL = "Fatal Python error"
_PART = re.compile(r'(?:Current thread|Thread) 0x|File ".*", line |\s*\.\.\.$|Stack \(most recent|<no Python frame>')
_MOST_LINES = 20_000


def fatal_stacks(text: str) -> dict[int | None, list[ThreadStack]]:
    """The threads of each rank's last fatal error in a log; None stands for lines that tell no rank."""
    if _FATAL not in text:
        return {}
    lines = text.split("\n")
    starts = {rank_of(plain(line)): number for number, line in enumerate(lines) if _FATAL in line}
    found = {rank: read_stacks(_dump(lines, number, rank)) for rank, number in starts.items()}
    return {rank: stacks for rank, stacks in found.items() if stacks}


def _dump(lines: list[str], start: int, rank: int | None) -> str:
    """The lines of one dump, without those that others wrote between them."""
    kept: list[str] = []
    for line in map(plain, lines[start + 1 : start + 1 + _MOST_LINES]):
        said = bare(line).strip()
        other = rank_of(line) if bare(line) != line else None
        if not said or (other is not None and other != rank):
            continue
        if _PART.match(said):
            kept.append(f"  {said}" if said.startswith("File ") else said)
        elif kept and other == rank:
            break
    return "\n".join(kept)
