"""Where in the program something was done: stacks without the frames of torch and of the watching itself, each kept
once.

A hazard has two sides, and the first is known to be one only later, so every operator needs its stack. Walking frames
and remembering code and line costs a few microseconds; names and paths are read when they are asked for.
"""

from __future__ import annotations

import os
import sys
from functools import lru_cache
from types import CodeType, FrameType

from dsv4prof.model.syncs import Frame

_OWN = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")  # noqa: PTH118, PTH120, PTH100
_DEEPEST = 24
_Stack = tuple[tuple[CodeType, int], ...]


class Sites:
    """Stacks by number, 0 being an unknown one."""

    def __init__(self) -> None:
        self._known: dict[_Stack, int] = {(): 0}

    def here(self) -> int:
        """The stack of the caller's program, innermost first."""
        stack: list[tuple[CodeType, int]] = []
        frame: FrameType | None = sys._getframe(1)
        while frame is not None and len(stack) < _DEEPEST:
            code = frame.f_code
            if not _is_inner(code.co_filename):
                stack.append((code, frame.f_lineno))
            frame = frame.f_back
        return self._known.setdefault(tuple(stack), len(self._known))

    def frames(self) -> list[tuple[Frame, ...]]:
        """All stacks, by their numbers."""
        return [tuple(Frame(code.co_filename, line, _qualified(code)) for code, line in stack) for stack in self._known]


def program_frame() -> FrameType | None:
    """The innermost frame of the program itself."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _is_inner(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def _qualified(code: CodeType) -> str:
    return getattr(code, "co_qualname", code.co_name).replace(".<locals>", "")


@lru_cache(maxsize=4096)
def _is_inner(file: str) -> bool:
    if file.startswith((_OWN, "<frozen")) or file.endswith(("contextlib.py", "weakref.py", "threading.py")):
        return True
    torch = sys.modules.get("torch")
    folder = os.path.dirname(getattr(torch, "__file__", None) or "")  # noqa: PTH120
    return bool(folder) and file.startswith(os.path.join(folder, ""))  # noqa: PTH118
