"""Modes of torch belong to a thread: threads that a program starts enter them, too."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from dsv4prof.sync.runtime.shadow.patches import Patches


def follow_threads(patches: Patches, entered: Callable[[], AbstractContextManager[Any]]) -> None:
    """Every thread started from now on runs within `entered()`."""
    start = threading.Thread.start

    def start_within(thread: threading.Thread) -> None:
        run = thread.run

        def run_within() -> None:
            with entered():
                run()

        thread.run = run_within  # type: ignore[method-assign]
        start(thread)

    patches.put(threading.Thread, "start", start_within)
