"""Rank files that are still written: a merge at a run's end often starts before the last of them is there."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path

_PAUSE_S = 0.25
# A file that was touched within this time may be written to again.
_RECENT_S = 5.0
# And one that was not touched for so long is taken as it is.
_QUIET_S = 2.0


class Patience:
    """How long a merge waits for ranks that are missing or cut. `limit_s` 0: not at all.

    Unless `asked`, it waits only while some file of the input is seen to be written.
    """

    def __init__(self, limit_s: float = 0.0, *, asked: bool = False) -> None:
        self._deadline = time.monotonic() + limit_s
        self._asked = asked

    def again(self, files: Sequence[Path | str], tell: Callable[[], None] = lambda: None) -> bool:
        """Wait, and say whether it is worth another look. `tell` is called before a wait."""
        local = [path for path in files if isinstance(path, Path)]
        if time.monotonic() >= self._deadline:
            return False
        if self._asked:
            tell()
            time.sleep(min(1.0, max(0.0, self._deadline - time.monotonic())))
            return True
        if not any(time.time() - _state(path)[1] < _RECENT_S for path in local):
            return False
        tell()
        before = [_state(path) for path in local]
        quiet = time.monotonic() + _QUIET_S
        while time.monotonic() < min(quiet, self._deadline):
            time.sleep(_PAUSE_S)
            if [_state(path) for path in local] != before:
                return True
        return False


def _state(path: Path) -> tuple[int, float]:
    try:
        stat = path.stat()
    except OSError:
        return -1, 0.0
    return stat.st_size, stat.st_mtime
