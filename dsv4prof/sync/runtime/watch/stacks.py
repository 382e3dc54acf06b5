"""Where in the program a call stands: cheap to take at every sync, put into words only when somebody reads it.

Torch's own `gather_traceback` is taken where there is one; else frames are walked, which takes a little longer.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

from dsv4prof.model.syncs import Frame

_DEEPEST = 64
_PACKAGE = str(Path(__file__).resolve().parents[3]) + os.sep
_OUTSIDE = ("torch", "triton")


class Place:
    """The innermost frame of the program itself, and the way to it.

    `key` tells one call from another on the same thread: the frame and the instruction in it.
    """

    __slots__ = ("_frames", "_trace", "code", "instruction", "key", "line", "thread")

    def __init__(self, frame: FrameType | None, trace: Any, *, frames: tuple[Frame, ...] | None = None) -> None:
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
            self._frames = _qualified(_spelled(self._trace), self.code)
            self._trace = None
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
    return Place(frame, _taken(frame))


def known(frames: tuple[Frame, ...]) -> Place:
    """A place whose frames somebody else has found already."""
    return Place(None, None, frames=frames)


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


def _taken(frame: FrameType | None) -> Any:
    gather = _gatherer()
    return gather() if gather is not None else _walked(frame)


@lru_cache(maxsize=1)
def _gatherer() -> Callable[[], Any] | None:
    """Torch's collector of Python frames alone; None where it is missing or takes other arguments."""
    try:
        from torch._C._profiler import gather_traceback, symbolize_tracebacks
    except ImportError:
        return None
    try:
        symbolize_tracebacks([gather_traceback(True, False, False)])
    except (TypeError, RuntimeError):
        return None
    return lambda: gather_traceback(True, False, False)


def _walked(frame: FrameType | None) -> list[tuple[str, int, str]]:
    found: list[tuple[str, int, str]] = []
    while frame is not None and len(found) < _DEEPEST:
        found.append((frame.f_code.co_filename, frame.f_lineno or 0, _named(frame.f_code)))
        frame = frame.f_back
    return found


def _named(code: CodeType) -> str:
    name: str = getattr(code, "co_qualname", code.co_name)
    return name


def _qualified(frames: tuple[Frame, ...], code: CodeType | None) -> tuple[Frame, ...]:
    """Torch's collector knows a function without its class; of the innermost, which counts most, we know both."""
    if code is None or not frames or frames[0].function != code.co_name:
        return frames
    return (Frame(frames[0].file, frames[0].line, _named(code)), *frames[1:])


def _spelled(trace: Any) -> tuple[Frame, ...]:
    if trace is None:
        return ()
    if isinstance(trace, list):
        rows = trace
    else:
        from torch._C._profiler import symbolize_tracebacks

        rows = [(row["filename"], row["line"], row["name"]) for row in symbolize_tracebacks([trace])[0]]
    kept = [Frame(file, line, name) for file, line, name in rows if not is_inner(file)]
    return tuple(kept[:_DEEPEST])
