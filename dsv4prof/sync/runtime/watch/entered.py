"""Which functions of some files a program entered, and which of their lines ran.

What ran and did not wait is as good to know as what waited.

On Python 3.12 and later a line is told of once and then costs nothing; before, each call costs a little and each line
of these files more.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

Entered = Callable[[str, str, int], None]
_NAME = "dsv4prof"


class Follower:
    """Tells `entered(file, qualified name, line of its def)` once of each function below `paths`."""

    def __init__(self, paths: Sequence[str], entered: Entered) -> None:
        full = [Path(path).resolve() for path in paths]
        self._files = frozenset(str(path) for path in full if not path.is_dir())
        self._folders = tuple(str(path) + os.sep for path in full if path.is_dir())
        self._entered = entered
        self._lines: dict[CodeType, set[int]] = {}
        self._others: set[CodeType] = set()
        self._tool: int | None = None

    def start(self) -> None:
        monitoring: Any = getattr(sys, "monitoring", None)
        if monitoring is not None:
            # The profiler's own number may be taken, by a profiler; any other does as well.
            free = [tool for tool in (4, 3, 5, 1) if monitoring.get_tool(tool) is None]
            if free:
                self._tool = free[0]
                monitoring.use_tool_id(self._tool, _NAME)
                events = monitoring.events
                monitoring.register_callback(self._tool, events.PY_START, self._started)
                monitoring.register_callback(self._tool, events.LINE, self._ran)
                monitoring.set_events(self._tool, events.PY_START | events.LINE)
                return
        threading.settrace(self._called)
        sys.settrace(self._called)

    def stop(self) -> None:
        if self._tool is not None:
            monitoring: Any = sys.monitoring  # type: ignore[attr-defined,unused-ignore]
            monitoring.set_events(self._tool, 0)
            monitoring.free_tool_id(self._tool)
            self._tool = None
        elif sys.gettrace() == self._called:
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type,unused-ignore]

    def lines(self) -> Iterator[tuple[str, str, int, tuple[int, ...]]]:
        """Each function so far: file, qualified name, line of its def, and the lines in it that ran."""
        for code, lines in list(self._lines.items()):
            yield code.co_filename, _named(code), code.co_firstlineno, tuple(sorted(lines))

    def _started(self, code: CodeType, _: int) -> Any:
        self._wants(code)
        return sys.monitoring.DISABLE  # type: ignore[attr-defined,unused-ignore]

    def _ran(self, code: CodeType, line: int) -> Any:
        if self._wants(code):
            self._lines[code].add(line)
        return sys.monitoring.DISABLE  # type: ignore[attr-defined,unused-ignore]

    def _called(self, frame: FrameType, event: str, _: Any) -> Any:
        if not self._wants(frame.f_code):
            return None
        lines = self._lines[frame.f_code]

        def line(inner: FrameType, event: str, _: Any) -> Any:
            lines.add(inner.f_lineno)
            return line

        return line

    def _wants(self, code: CodeType) -> bool:
        if code in self._lines:
            return True
        if code in self._others:
            return False
        # Modules, classes and comprehensions have no name of their own.
        file = code.co_filename
        named = not code.co_name.startswith("<")
        if not named or not (file in self._files or file.startswith(self._folders)):
            self._others.add(code)
            return False
        self._lines[code] = set()
        self._entered(code.co_filename, _named(code), code.co_firstlineno)
        return True


def _named(code: CodeType) -> str:
    name: str = getattr(code, "co_qualname", code.co_name)
    return name.replace("<locals>.", "")
