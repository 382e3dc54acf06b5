"""Where in the program something was done: stacks without the frames of torch and of the watching itself, each kept
once.

A hazard has two sides, and the first is known to be one only later, so every operator needs its stack. Walking frames
and remembering code and place costs a few microseconds; names, paths and lines are read when they are asked for.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from functools import lru_cache
from types import CodeType, FrameType

import msgspec

from dsv4prof.model.syncs import Frame

_OWN = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")  # noqa: PTH118, PTH120, PTH100
DEEPEST = 48
_MOST_REGIONS = 4096
# The id of code (hashing code itself is slow) and the place in it, in turn: made for every operator.
_Stack = tuple[int, ...]


class Mark(msgspec.Struct, frozen=True, array_like=True):
    """Where in the program: the step's number and the innermost region, where they are known."""

    step: int | None = None
    region: str = ""


class Marks:
    """Steps and regions as one number each, which the regions alone say how to read: steps have no end."""

    def __init__(self, regions: Iterable[str] = ("",)) -> None:
        self._regions = {region: index for index, region in enumerate(regions)}
        self._names = list(self._regions)

    @property
    def regions(self) -> list[str]:
        return list(self._names)

    def number(self, step: int | None, region: str) -> int:
        index = self._regions.get(region)
        if index is None:
            if len(self._names) >= _MOST_REGIONS:
                return self.number(step, "")
            index = self._regions[region] = len(self._names)
            self._names.append(region)
        return (0 if step is None else step + 1) * _MOST_REGIONS + index

    def __getitem__(self, number: int) -> Mark:
        step, region = divmod(number, _MOST_REGIONS)
        return Mark(step - 1 if step else None, self._names[region])


class Sites:
    """Stacks by number, 0 being an unknown one."""

    def __init__(self) -> None:
        self._known: dict[_Stack, int] = {(): 0}
        # Code by its id, kept alive so that the id stays its own: torch's and ours, and the program's.
        self._inner: dict[int, CodeType] = {}
        self._outside: dict[int, CodeType] = {}

    def here(self) -> int:
        """The stack of the caller's program, innermost first."""
        stack: list[int] = []
        inner, outside, push = self._inner, self._outside, stack.append
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            code = frame.f_code
            key = id(code)
            if key in outside:
                push(key)
                push(frame.f_lasti)
                if len(stack) >= 2 * DEEPEST:
                    break
            elif key not in inner:
                (inner if _is_inner(code.co_filename) else outside)[key] = code
                continue
            frame = frame.f_back
        return self._known.setdefault(tuple(stack), len(self._known))

    def frames(self) -> list[tuple[Frame, ...]]:
        """All stacks, by their numbers."""
        codes = self._outside
        return [
            tuple(_frame(codes[stack[at]], stack[at + 1]) for at in range(0, len(stack), 2)) for stack in self._known
        ]


def program_frame() -> FrameType | None:
    """The innermost frame of the program itself."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _is_inner(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


@lru_cache(maxsize=65536)
def _frame(code: CodeType, place: int) -> Frame:
    line = next((line for first, end, line in code.co_lines() if first <= place < end and line), code.co_firstlineno)
    return Frame(code.co_filename, line, _qualified(code))


def _qualified(code: CodeType) -> str:
    return getattr(code, "co_qualname", code.co_name).replace(".<locals>", "")


@lru_cache(maxsize=4096)
def _is_inner(file: str) -> bool:
    if file.startswith((_OWN, "<frozen")) or file.endswith(("contextlib.py", "weakref.py", "threading.py")):
        return True
    torch = sys.modules.get("torch")
    folder = os.path.dirname(getattr(torch, "__file__", None) or "")  # noqa: PTH120
    return bool(folder) and file.startswith(os.path.join(folder, ""))  # noqa: PTH118
