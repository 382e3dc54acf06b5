"""The Python stack of a call, innermost first, without torch's frames and those of the machinery that watches."""

from __future__ import annotations

import sys
from functools import lru_cache
from pathlib import Path
from types import FrameType

from dsv4prof.model.syncs import Frame

_RUNTIME = str(Path(__file__).parent.parent)
_DEEP = 64


def stack() -> tuple[Frame, ...]:
    """At most 64 frames of the program."""
    frames: list[Frame] = []
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and len(frames) < _DEEP:
        code = frame.f_code
        if _is_the_programs(code.co_filename):
            frames.append(Frame(code.co_filename, frame.f_lineno, getattr(code, "co_qualname", code.co_name)))
        frame = frame.f_back
    return tuple(frames)


@lru_cache(maxsize=4096)
def _is_the_programs(file: str) -> bool:
    if file.startswith((_RUNTIME, "<frozen ")) or file == "<string>":
        return False
    parts = Path(file).parts
    return "torch" not in parts or "site-packages" not in parts[: parts.index("torch")]
