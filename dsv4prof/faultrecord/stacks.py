"""Python's stacks of a rank that does not move, as its signal handler wrote them."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

_THREAD = re.compile(r"^(Current thread|Thread) (0x[0-9a-f]+)(?: \[([^\]]*)\])?")
_FRAME = re.compile(r'^\s+File "([^"]*)", line (\d+|\?\?\?) in (.*)$')
_INNER = re.compile(r"[/\\](?:torch|threading\.py|selectors\.py|contextlib\.py|concurrent|asyncio)(?:[/\\]|$)|<frozen")

# Our own watchdog is in every dump, and waits for nothing that matters.
_OURS = re.compile(r"faultwatch[/\\]watchdog\.py$")


class StackFrame(msgspec.Struct, frozen=True):
    """One line of a stack."""

    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.function}, {Path(self.file).name}:{self.line}"


class ThreadStack(msgspec.Struct, frozen=True):
    """A thread and its frames, innermost first. The last one of a dump is the main thread; `current` is the one that
    wrote the dump: of an abort the one that failed, where that is a thread of Python.
    """

    thread: str
    frames: tuple[StackFrame, ...]
    current: bool = False

    @property
    def place(self) -> StackFrame | None:
        """The innermost frame that is the program's own."""
        return next((each for each in self.frames if not _INNER.search(each.file)), next(iter(self.frames), None))


def read_stacks(text: str) -> list[ThreadStack]:
    """The threads of the last dump in the text."""
    threads: list[tuple[str, list[StackFrame]]] = []
    current = ""
    for line in text.splitlines():
        if (thread := _THREAD.match(line)) is not None:
            if any(thread[2] == known for known, _ in threads):
                threads = []
            threads.append((thread[2], []))
            current = thread[2] if thread[1].startswith("Current") else current
        elif threads and (frame := _FRAME.match(line)) is not None:
            number = int(frame[2]) if frame[2].isdigit() else 0
            threads[-1][1].append(StackFrame(frame[1], number, frame[3]))
    found = [ThreadStack(thread, tuple(frames), thread == current) for thread, frames in threads if frames]
    return [each for each in found if not any(_OURS.search(frame.file) for frame in each.frames)]
