"""The work that the programs record, recognisable in a trace, and the shortest profiler of plain torch."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Nothing else in these programs calls it, and every build of torch has it.
OPERATOR = "aten::cumsum"
CALLS = 20
TRACE = "trace.json"


def work(calls: int = CALLS) -> None:
    """`calls` operators on the CPU, by name OPERATOR."""
    import torch

    for _ in range(calls):
        torch.ones(4).cumsum(0)


def profiler(**options: Any) -> Any:
    """A `torch.profiler.profile` of the CPU alone, so that every half is the same program on every machine."""
    from torch.profiler import ProfilerActivity, profile

    return profile(activities=[ProfilerActivity.CPU], **options)


def save(profile: Any, path: Path) -> None:
    profile.export_chrome_trace(str(path))


def on_another_thread(*calls: Callable[[], object]) -> None:
    """Run `calls` in turn on a thread that ends with them; what one raises is raised here."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            for call in calls:
                call()
        except BaseException as error:  # noqa: BLE001  handed over to the caller
            raised.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if raised:
        raise raised[0]
