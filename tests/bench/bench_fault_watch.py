"""What the fault watch costs: a record, an operator, and an engine step, with and without in turn.

python tests/bench/bench_fault_watch.py [--device cuda] [--model dsv4-tiny] [--windows 12] [--steps 30]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from statistics import median

import torch

from dsv4_engine.engine import Engine
from dsv4_engine.hooks import NullHooks
from dsv4_engine.options import EngineOptions
from dsv4prof.faultrecord.layout import Kind
from dsv4prof.faultrecord.ring import RingWriter
from dsv4prof.sync.runtime.faultwatch.watch import FaultWatch
from dsv4prof.target.hooks import ProfilingHooks
from dsv4prof.target.watching import WatchedHooks


class Switched:
    """Hooks that can be turned from watched to silent between steps."""

    def __init__(self) -> None:
        self.now = NullHooks()

    def __getattr__(self, name):
        return getattr(self.now, name)


def record_us(folder: Path, count: int = 200_000) -> float:
    ring = RingWriter(folder / "bench.faultring", facts={})
    name, what = ring.name("aten::add.Tensor"), ring.name("self float32[8, 8]")
    touches = (1 << 40, 256, what, 0) * 3
    began = time.perf_counter()
    for _ in range(count):
        ring.returned(ring.launch(Kind.OPERATOR, step=1, operator=name, stream=7, thread=9, touches=touches))
    return (time.perf_counter() - began) / count * 1e6


def operator_us(folder: Path, device: int | None, count: int = 20_000) -> tuple[float, float]:
    place = "cpu" if device is None else f"cuda:{device}"
    left, right = torch.ones(8, 8, device=place), torch.ones(8, 8, device=place)

    def run() -> float:
        if device is not None:
            torch.cuda.synchronize()
        began = time.perf_counter()
        for _ in range(count):
            torch.add(left, right)
        return (time.perf_counter() - began) / count * 1e6

    run()
    plain = run()
    with FaultWatch(folder, device=device):
        run()
        return plain, run()


def step_ratio(folder: Path, options: argparse.Namespace, device: int | None) -> tuple[float, float, float]:
    """Medians of plain and watched decode steps, ms, and of their ratio over pairs of windows."""
    hooks = Switched()
    engine = Engine(
        EngineOptions(model=options.model, device="cpu" if device is None else f"cuda:{device}",
                      max_requests=options.requests, context_len=4096), hooks=hooks,
    )  # fmt: skip
    need = options.windows * 2 * options.steps * 4 + 200
    for number in range(options.requests):
        engine.add([1 + number, 2, 3, 4, 5], max_new_tokens=min(need, 4000), ignore_eos=True)
    for _ in range(10):
        engine.step()
    times: dict[bool, list[float]] = {False: [], True: []}
    for window in range(2 * options.windows):
        watched = window % 2 == 1
        watch = FaultWatch(folder, device=device) if watched else None
        with watch if watch is not None else nullcontext():
            hooks.now = WatchedHooks(watch, ProfilingHooks()) if watch is not None else NullHooks()
            engine.step()
            began = time.perf_counter()
            done = 0
            while done < options.steps and engine.has_work:
                engine.step()
                done += 1
            if done:
                times[watched].append((time.perf_counter() - began) / done * 1e3)
            hooks.now = NullHooks()
    pairs = [with_it / plain for plain, with_it in zip(times[False], times[True], strict=False)]
    return median(times[False]), median(times[True]), median(pairs)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--model", default="dsv4-tiny")
    parser.add_argument("--windows", type=int, default=8)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--requests", type=int, default=4)
    options = parser.parse_args()
    torch.set_num_threads(1)
    device = 0 if options.device == "cuda" else None
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        print(f"a record: {record_us(folder):.2f} us")
        plain, watched = operator_us(folder, device)
        print(f"an operator (add of 8 x 8, {options.device}): {plain:.1f} us plain, {watched:.1f} us watched")
        before, after, ratio = step_ratio(folder, options, device)
        print(f"an engine step ({options.model}, {options.device}): {before:.2f} ms plain, {after:.2f} ms watched, "
              f"ratio {ratio:.3f} (median of {options.windows} pairs of windows in turn)")  # fmt: skip


if __name__ == "__main__":
    main()
