"""What recording costs a step, by what is recorded: CPU seconds against the same step unprofiled, in one run.

    python tests/bench/bench_overhead.py

The step is a small model on the CPU: many small operators called through several Python functions, where a profiler
weighs most. Rounds of all kinds alternate, so that a slow moment of the machine hits all of them; the ratio is the
median over the rounds. Behind it what stopping and exporting cost an event of the trace.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

from dsv4prof.recorder.backends.compose import make_backend
from dsv4prof.recorder.counting import EventCounter
from dsv4prof.recorder.plan import RecordPlan

ROUNDS = 15
STEPS = 40
LAYERS = 12
WIDTH = 16
PLANS = {
    "plain": RecordPlan(with_stack=False),
    "shapes": RecordPlan(with_stack=False, record_shapes=True),
    "stacks": RecordPlan(with_stack=True),
    "memory": RecordPlan(with_stack=False, profile_memory=True),
    "all": RecordPlan(with_stack=True, record_shapes=True, profile_memory=True),
}


class Block:
    """One layer: nine operators called from Python, in three functions; some call others."""

    def __init__(self) -> None:
        self.weight = torch.randn(WIDTH, WIDTH) / WIDTH

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x + self.mix(x))

    def mix(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(torch.mm(x, self.weight)).mul_(0.5).add_(1.0)

    def norm(self, x: torch.Tensor) -> torch.Tensor:
        return x / x.pow(2).mean().sqrt()


BLOCKS = [Block() for _ in range(LAYERS)]


def step() -> None:
    x = torch.ones(WIDTH, WIDTH)
    for block in BLOCKS:
        x = block(x)


def cpu_seconds(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def steps() -> None:
    for _ in range(STEPS):
        step()


def profiled(plan: RecordPlan, folder: Path) -> tuple[float, float, float, int, int]:
    """CPU seconds of the steps, of stopping and of exporting; the events of the trace, and the operators of those."""
    backend = make_backend(plan)
    path = folder / "trace.json"
    backend.prepare()
    backend.start()
    took = cpu_seconds(steps)
    stop = cpu_seconds(backend.stop)
    export = cpu_seconds(lambda: backend.export(path))
    backend.release()
    counter = EventCounter()
    counter.feed(path.read_bytes())
    counter.finish()
    return took, stop, export, counter.events, counter.work


def main() -> None:
    torch.set_num_threads(1)
    make_backend(PLANS["plain"]).warm_up()
    bare: list[float] = []
    found: dict[str, list[tuple[float, float, float, int, int]]] = {name: [] for name in PLANS}
    steps()
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(ROUNDS):
            bare.append(cpu_seconds(steps))
            for name, plan in PLANS.items():
                found[name].append(profiled(plan, Path(folder)))
    # Nested ones count: each is recorded.
    operators = found["plain"][0][4]
    print(f"torch {torch.__version__}, a step of {operators / STEPS:.0f} operators, {ROUNDS} rounds of {STEPS} steps\n")
    heads = ("ms/step", "ratio", "us/op", "added", "stop us/event", "export us/event", "events/step")
    print(" " * 10 + "".join(f"{head:>{len(head) + 3}}" for head in heads))
    _line("unprofiled", heads, median(bare) / STEPS * 1e3, 1.0, median(bare) / operators * 1e6)
    for name, rounds in found.items():
        ratio = median(took / plain for (took, *_), plain in zip(rounds, bare, strict=True))
        added = median((took - plain) / operators for (took, *_), plain in zip(rounds, bare, strict=True))
        took, stop, export, events, _ = (median(values) for values in zip(*rounds, strict=True))
        per_event = (stop / events * 1e6, export / events * 1e6, events / STEPS)
        _line(name, heads, took / STEPS * 1e3, ratio, took / operators * 1e6, added * 1e6, *per_event)


def _line(name: str, heads: tuple[str, ...], *values: float) -> None:
    cells = (f"{value:{len(head) + 3}.{0 if value >= 100 else 2}f}" for head, value in zip(heads, values, strict=False))
    print(f"{name:10}" + "".join(cells))


if __name__ == "__main__":
    main()
