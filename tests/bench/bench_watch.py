"""What watching for syncs costs a step of the engine, layer by layer: blocks of steps with and without in turn.

    python tests/bench/bench_watch.py [--seconds 130] [--no-gpu] [--model FOLDER] [--device cpu]

One engine serves on, and every few steps the watch is switched on or off. Switching is not timed, and it voids what
Python knew of torch.Tensor and torch.cuda, so before an unwatched block the same watch is switched on and off as well.
A watched block is compared with the unwatched one beside it, first and second in turn; the figure is the median of
those ratios with its 95 % interval by bootstrap, by the clock and by the processor time of the thread that steps.
`gpu_trace` cannot be switched off again, so it comes last and is compared with what was before it. With --no-gpu: an
engine on shadow tensors against the same engine on the CPU.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from statistics import median

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

from dsv4_engine.engine import Engine
from dsv4_engine.options import EngineOptions
from dsv4prof.errors import Dsv4profError
from dsv4prof.sync.runtime.watch import SyncWatch
from dsv4prof.target.hooks import ProfilingHooks

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "dsv4_tiny"
# Layers, and their share of the time: what costs little needs more blocks to be seen.
SETS: dict[str, tuple[tuple[str, ...], int]] = {
    "unwatched again": ((), 4),
    "L0 (the next three)": (("warn", "explicit", "copies"), 8),
    "warn": (("warn",), 2),
    "explicit": (("explicit",), 2),
    "copies": (("copies",), 2),
    "dispatch": (("dispatch",), 1),
    "callbacks": (("callbacks",), 1),
}
BLOCK = 8
SKIPPED = 2
RESAMPLES = 2000
Step = tuple[int, int]
"""Nanoseconds by the clock, and of the processor for this thread."""


class Served:
    """One engine, and windows of the same work."""

    def __init__(self, device: str, model: str, *, new: int, graphs: bool = True) -> None:
        self._new = new
        self._prompts = torch.randint(2, 320, (8, 48), generator=torch.Generator().manual_seed(7)).tolist()
        captured = graphs and device != "cpu"
        options = EngineOptions(
            model=model, device=device, max_requests=8, context_len=48 + new, radix=False, graphs=captured
        )
        self._engine = Engine(options, hooks=ProfilingHooks())

    def step(self) -> Step:
        """One step of work that never ends."""
        if not self._engine.has_work:
            for prompt in self._prompts:
                self._engine.add(prompt, max_new_tokens=self._new, ignore_eos=True)
            # Prompts are read in steps of another kind.
            self._engine.step()
            self._engine.step()
        used, began = time.thread_time_ns(), time.perf_counter_ns()
        self._engine.step()
        return time.perf_counter_ns() - began, time.thread_time_ns() - used

    def block(self, watch: AbstractContextManager[object]) -> list[Step]:
        """A few steps, without the first ones, which pay for the switching."""
        with watch:
            for _ in range(SKIPPED):
                self.step()
            return [self.step() for _ in range(BLOCK)]

    def window(self, watch: AbstractContextManager[object]) -> list[int]:
        """Nanoseconds of each step."""
        for prompt in self._prompts:
            self._engine.add(prompt, max_new_tokens=self._new, ignore_eos=True)
        took = []
        with watch:
            while self._engine.has_work:
                began = time.perf_counter_ns()
                self._engine.step()
                took.append(time.perf_counter_ns() - began)
        return took


class Compared:
    """Ratios of blocks that stood side by side."""

    def __init__(self) -> None:
        self.clock: list[float] = []
        self.processor: list[float] = []

    def add(self, watched: list[Step], bare: list[Step]) -> None:
        for ratios, which in ((self.clock, 0), (self.processor, 1)):
            one, other = (median(step[which] for step in block) for block in (watched, bare))
            ratios.append(one / max(other, 1))


def spread(ratios: list[float]) -> tuple[float, float, float]:
    """Median, and the 95 % interval of medians of samples drawn from these ratios again."""
    chance = random.Random(7)
    drawn = sorted(median(chance.choices(ratios, k=len(ratios))) for _ in range(RESAMPLES))
    return median(ratios), drawn[round(0.025 * RESAMPLES)], drawn[round(0.975 * RESAMPLES) - 1]


def compared(
    step: Callable[[AbstractContextManager[object]], list[Step]],
    make: Callable[[], AbstractContextManager[object]],
    until: float,
) -> Compared:
    """Pairs of blocks until a time (`time.monotonic`), the watched one first and second in turn."""
    found = Compared()
    while time.monotonic() < until:
        for first in (True, False):
            blocks = {}
            for watched in (first, not first):
                if not watched:
                    with make():
                        pass
                blocks[watched] = step(make() if watched else nullcontext())
            found.add(blocks[True], blocks[False])
    return found


def on_a_gpu(served: Served, seconds: float, device: str) -> None:
    for _ in range(3):
        served.window(nullcontext())
    shares = sum(share for _, share in SETS.values()) + 2
    steps = [each for _ in range(40) for each in served.block(nullcontext())]
    clock, processor = (median(step[which] for step in steps) / 1e6 for which in (0, 1))
    print(f"unwatched step: {clock:.3f} ms, of which the thread computes {processor:.3f} ms ({len(steps)} steps)\n")
    print(
        f"{'layers':20} {'clock':>8} {'95 % interval':>18} {'processor':>10} {'95 % interval':>18}"
        f" {'pairs':>6} {'waits a step':>13}"
    )
    for name, (layers, share) in SETS.items():
        waits: list[int] = []

        def make(layers: tuple[str, ...] = layers, waits: list[int] = waits) -> AbstractContextManager[object]:
            return Counting(layers, waits, gpu=device != "cpu") if layers else nullcontext()

        try:
            found = compared(served.block, make, time.monotonic() + seconds * share / shares)
        except Dsv4profError as error:
            print(f"{name}: {error}", file=sys.stderr)
            continue
        show(name, found, sum(waits) / max(1, len(found.clock)) / (BLOCK + SKIPPED))
    if device != "cpu":
        with_gpu_trace(served, seconds / shares)


class Counting:
    """A watch that notes how often the block waited."""

    def __init__(self, layers: tuple[str, ...], waits: list[int], *, gpu: bool) -> None:
        self._watch = SyncWatch(gpu=gpu, layers=layers if gpu else None, own_process=True, strict=False, keep=0)  # type: ignore[arg-type]
        self._waits = waits

    def __enter__(self) -> object:
        return self._watch.__enter__()

    def __exit__(self, *failure: object) -> None:
        self._watch.__exit__(None, None, None)
        self._waits.append(self._watch.syncs)


def with_gpu_trace(served: Served, seconds: float) -> None:
    blocks: list[list[list[Step]]] = []
    for watch in (nullcontext(), Counting(("gpu_trace",), [], gpu=True)):
        until, taken = time.monotonic() + seconds, []
        with watch:
            while time.monotonic() < until:
                taken.append(served.block(nullcontext()))
        blocks.append(taken)
    found = Compared()
    for bare, watched in zip(*blocks, strict=False):
        found.add(watched, bare)
    show("gpu_trace (after)", found, 0.0)


def show(name: str, found: Compared, waits: float) -> None:
    cells = []
    for ratios in (found.clock, found.processor):
        middle, low, high = spread(ratios)
        cells.append(f"{middle:8.4f} {f'{low:.4f}..{high:.4f}':>18}")
    print(f"{name:20} {cells[0]}   {cells[1]} {len(found.clock):6} {waits:13.2f}", flush=True)


def without_a_gpu(arguments: argparse.Namespace) -> None:
    served = Served("cpu", arguments.model, new=arguments.new)
    served.window(nullcontext())
    bare = [served.window(nullcontext()) for _ in range(arguments.rounds)]
    with SyncWatch(gpu=False, strict=False) as watch:
        shadowed = Served("cuda", arguments.model, new=arguments.new, graphs=False)
        shadowed.window(nullcontext())
        before = watch.syncs
        windows = [shadowed.window(nullcontext()) for _ in range(arguments.rounds)]
    plain, shadow = (median(step for window in each for step in window) for each in (bare, windows))
    print(f"step on the CPU {plain / 1e6:.2f} ms, on shadow tensors {shadow / 1e6:.2f} ms: ratio {shadow / plain:.2f}")
    print(f"waits in a window: {(watch.syncs - before) / arguments.rounds:.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=130.0, help="of measuring, beside the start of the engine")
    parser.add_argument("--rounds", type=int, default=12, help="with --no-gpu")
    parser.add_argument("--new", type=int, default=64)
    parser.add_argument("--model", default=str(GOLDEN))
    parser.add_argument("--no-gpu", action="store_true")
    parser.add_argument("--device", default="cuda", help="cpu: try this program where there is no GPU")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.no_gpu:
        without_a_gpu(arguments)
        return
    where = torch.cuda.get_device_name() if arguments.device != "cpu" else "CPU"
    print(f"torch {torch.__version__}, {where}, {arguments.seconds:g} s")
    on_a_gpu(Served(arguments.device, arguments.model, new=arguments.new), arguments.seconds, arguments.device)


if __name__ == "__main__":
    main()
