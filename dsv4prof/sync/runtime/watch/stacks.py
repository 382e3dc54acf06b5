"""Where in the program a call stands: cheap to take at every sync, put into words only when somebody reads it.

Frames are walked for code and instruction alone. Torch's own `gather_traceback` takes as long (4.4 against 4.6 us for
40 frames), needs a private symbol, and its first symbolization stops the program for a second.
"""

from __future__ import annotations

import os
import sys
import threading
from functools import lru_cache
from pathlib import Path
from types import CodeType, FrameType

from dsv4prof.model.syncs import Frame

_DEEPEST = 64
_PACKAGE = str(Path(__file__).resolve().parents[3]) + os.sep
_OUTSIDE = ("torch", "triton")
_NEAR, _WALKS = 5, 32
_MOST_WAYS = 4096
_Trace = list[tuple[CodeType, int]]


class Place:
    """The innermost frame of the program itself, and the way to it.

    `key` tells one call from another on the same thread: the frame and the instruction in it.
    """

    __slots__ = ("_frames", "_trace", "code", "instruction", "key", "line", "thread")

    def __init__(
        self, frame: FrameType | None, trace: list[tuple[CodeType, int]], *, frames: tuple[Frame, ...] | None = None
    ) -> None:
        self.thread = threading.get_ident()
        self.code: CodeType | None = frame.f_code if frame is not None else None
        self.instruction = frame.f_lasti if frame is not None else -1
        self.line = (frame.f_lineno or 0) if frame is not None else (frames[0].line if frames else 0)
        self.key = (self.thread, id(frame) if frame is not None else 0, self.instruction)
        self._trace, self._frames = trace, frames

    @property
    def frames(self) -> tuple[Frame, ...]:
        """Innermost first, without frames of torch and of this package."""
        if self._frames is None:
            self._frames = _spelled(self._trace)
            self._trace = []
        return self._frames

    @property
    def site(self) -> object:
        """The same for every call of this line by this function."""
        if self.code is not None:
            return (self.code, self.instruction)
        return self._frames[:1] if self._frames else ()


def here() -> Place:
    """The place of the call that is being made now."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and is_inner(frame.f_code.co_filename):
        frame = frame.f_back
    return Place(frame, _way(frame) if frame is not None else [])


# By the innermost frames: how often the whole way was walked, and what it was.
_ways: dict[tuple[object, ...], tuple[int, _Trace]] = {}


def _way(frame: FrameType) -> _Trace:
    """The way to a call. One that is reached through the same few functions again and again, as in a loop of steps, is
    walked to the outermost frame some times only: each frame that is looked at costs its function as well.
    """
    near: list[object] = []
    at: FrameType | None = frame
    for _ in range(_NEAR):
        if at is None:
            break
        near += (at.f_code, at.f_lasti)
        at = at.f_back
    key = tuple(near)
    walks, trace = _ways.get(key, (0, []))
    if walks >= _WALKS:
        return trace
    trace = _taken(frame)
    if walks or len(_ways) < _MOST_WAYS:
        _ways[key] = (walks + 1, trace)
    return trace


def known(frames: tuple[Frame, ...]) -> Place:
    """A place whose frames somebody else has found already."""
    return Place(None, [], frames=frames)


@lru_cache(maxsize=8192)
def is_inner(file: str) -> bool:
    """Whether a file belongs to torch, to this package or to the interpreter itself."""
    return file.startswith(("<frozen ", *_inner_folders()))


def _inner_folders() -> tuple[str, ...]:
    folders = [_PACKAGE]
    for name in _OUTSIDE:
        module = sys.modules.get(name)
        file = getattr(module, "__file__", None)
        if file:
            folders.append(os.path.join(os.path.dirname(file), ""))  # noqa: PTH118, PTH120
    return tuple(folders)


def forget_folders() -> None:
    """Torch was imported after files had been judged."""
    is_inner.cache_clear()


def _taken(frame: FrameType | None) -> list[tuple[CodeType, int]]:
    """Code and instruction of each frame: lines are looked up only for what is shown."""
    found: list[tuple[CodeType, int]] = []
    for _ in range(_DEEPEST):
        if frame is None:
            break
        found.append((frame.f_code, frame.f_lasti))
        frame = frame.f_back
    return found


def _named(code: CodeType) -> str:
    name: str = getattr(code, "co_qualname", code.co_name)
    return name


def _spelled(trace: list[tuple[CodeType, int]]) -> tuple[Frame, ...]:
    return tuple(
        Frame(code.co_filename, _line(code, instruction), _named(code))
        for code, instruction in trace
        if not is_inner(code.co_filename)
    )


def _line(code: CodeType, instruction: int) -> int:
    for start, end, line in code.co_lines():
        if start <= instruction < end and line is not None:
            return line
    return code.co_firstlineno
