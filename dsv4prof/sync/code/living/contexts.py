"""Blocks in which a program itself allows syncs: `with gpu_sync_allowed():`, vLLM's, speaks as `# gpu-sync-ok` does.

Told by the indentation of the text: it is asked of files that are known to be read without a fault.
"""

from __future__ import annotations

import re

from dsv4prof.sync.code.living.comments import Allowance

_OPENS = re.compile(r"([ \t]*)with\b.*\bgpu_sync_allowed\(\)")


def allowed_blocks(text: str) -> list[Allowance]:
    """One allowance a block, of all its lines."""
    if "gpu_sync_allowed" not in text:
        return []
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    found: list[Allowance] = []
    for place, line in enumerate(lines):
        opened = _OPENS.match(line)
        if opened is None:
            continue
        shown = line.strip()
        found.append(
            Allowance(
                kind="gpu-sync-ok",
                reason="within gpu_sync_allowed()",
                text=shown,
                line=place + 1,
                column=len(opened[1]) + 1,
                end_column=len(opened[1]) + len(shown) + 1,
                first=place + 1,
                last=_end(lines, place, len(opened[1])),
            )
        )
    return found


def _end(lines: list[str], place: int, depth: int) -> int:
    """The last line that is indented deeper than the one that opens the block."""
    last = place
    for number in range(place + 1, len(lines)):
        line = lines[number]
        if not line.strip():
            continue
        if len(line) - len(line.lstrip(" \t")) <= depth:
            break
        last = number
    return last + 1
