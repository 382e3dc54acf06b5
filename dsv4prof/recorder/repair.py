"""Kineto pastes names into its JSON unescaped and reports success; a file is trusted only after it was read back.

One annotation with a quote or a backslash in its name makes the whole trace unreadable for every viewer
(pytorch #146900, kineto #1459). The damage is local to a name, so it can be mended in the text.
"""

from __future__ import annotations

import json
import mmap
import re
from pathlib import Path

import msgspec

# Kineto writes a slice's name between its category and its pid; a name may span lines.
_NAME = re.compile(rb'("cat": "[^"]*",\s*"name": ")(.*?)(",\s*"pid": )', re.DOTALL)


def json_fault(path: Path) -> str | None:
    """Why `path` is not one whole JSON value, or None when it is. Reads it once, without building objects."""
    if not path.exists():
        return "no file was written"
    if path.stat().st_size == 0:
        return "the file is empty"
    with path.open("rb") as handle, mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as view:
        try:
            msgspec.json.decode(view, type=msgspec.Raw)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return str(error)
    return None


def repair_names(path: Path) -> int:
    """Escape in place every event name that is not a valid JSON string; returns how many there were."""
    repaired = 0

    def mend(match: re.Match[bytes]) -> bytes:
        nonlocal repaired
        text = match[2]
        try:
            json.loads(b'"' + text + b'"')
        except (ValueError, UnicodeDecodeError):
            repaired += 1
            return match[1] + json.dumps(text.decode("utf-8", "replace"))[1:-1].encode() + match[3]
        return match[0]

    mended = _NAME.sub(mend, path.read_bytes())
    if repaired:
        path.write_bytes(mended)
    return repaired
