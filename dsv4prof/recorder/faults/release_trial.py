"""Which release this machine bears: on some ROCm the destruction of a stopped profiler crashes the process.

Only a child can find out. Each way is tried with a few recordings of work on the accelerator, where there is one, and
is judged by the child's end.
"""

# dsv4prof: allow-file[DSV106] a trial that waits on purpose
from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Literal

from dsv4prof.recorder.faults.fault import Program

WAYS: tuple[Literal["collect", "keep"], ...] = ("collect", "keep")
RECORDINGS = 4
_REPLAYS = 20


def _trial(way: Literal["collect", "keep"]) -> Program:
    def program(folder: Path) -> None:
        import torch

        from dsv4prof.recorder.plan import RecordPlan
        from dsv4prof.recorder.standalone import record

        step = _gpu_step() if torch.cuda.is_available() else _cpu_step
        for number in range(RECORDINGS):
            with record(RecordPlan(active=None, with_stack=number % 2 == 0, release=way), root=folder):
                step()
            # Between two recordings the program works on, as a server does.
            step()

    return program


def _cpu_step() -> None:
    import torch

    for _ in range(200):
        torch.relu(torch.mm(torch.ones(8, 8), torch.ones(8, 8)))


def _gpu_step() -> Callable[[], None]:
    """Kernels, and a captured graph where one can be captured: teardown after graphs is where drivers fail."""
    import torch

    x = torch.ones(64, 64, device="cuda")
    aside = torch.cuda.Stream()
    with torch.cuda.stream(aside):
        torch.relu(torch.mm(x, x))
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        torch.relu(torch.mm(x, x))

    def step() -> None:
        for _ in range(_REPLAYS):
            torch.relu(torch.mm(x, x))
            graph.replay()
        torch.cuda.synchronize()

    return step


PROGRAMS: dict[str, Program] = {f"release-{way}": _trial(way) for way in WAYS}
