"""What watching for syncs costs a step of the engine, layer by layer: windows with and without in turn.

    python tests/bench/bench_watch.py [--rounds 12] [--no-gpu] [--model FOLDER]

On a GPU: the same prompts are served again and again by one engine, by turns unwatched and watched with each set of
layers. Step i of a watched window is compared with step i of the unwatched one before it; the figure is the median of
those ratios, with its spread over rounds. `gpu_trace` cannot be switched off again, so it is compared across processes
that take turns. With --no-gpu: an engine on shadow tensors against the same engine on the CPU.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from statistics import median

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

from dsv4_engine.engine import Engine
from dsv4_engine.options import EngineOptions
from dsv4prof.sync.runtime.watch import SyncWatch
from dsv4prof.target.hooks import ProfilingHooks

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "dsv4_tiny"
SETS: dict[str, tuple[str, ...]] = {
    "warn": ("warn",),
    "explicit": ("explicit",),
    "copies": ("copies",),
    "L0 (all three)": ("warn", "explicit", "copies"),
    "dispatch": ("dispatch",),
    "callbacks": ("callbacks",),
}
PROCESSES = 5


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


def ratio(watched: list[int], bare: list[int]) -> float:
    assert len(watched) == len(bare), "not the same work"
    return median(one / other for one, other in zip(watched, bare, strict=True))


def on_a_gpu(served: Served, rounds: int) -> None:
    for _ in range(3):
        served.window(nullcontext())
    found: dict[str, list[float]] = {name: [] for name in ("unwatched again", *SETS)}
    waits: dict[str, int] = {}
    steps: list[int] = []
    for _ in range(rounds):
        for name in found:
            bare = served.window(nullcontext())
            steps += bare
            try:
                watch = SyncWatch(gpu=True, layers=SETS[name], strict=False) if name in SETS else nullcontext()  # type: ignore[arg-type]
                found[name].append(ratio(served.window(watch), bare))
            except Exception as error:  # noqa: BLE001  a layer that cannot work here is a row that says so
                waits[name] = -1
                print(f"{name}: {error}", file=sys.stderr)
                continue
            waits[name] = watch.syncs if isinstance(watch, SyncWatch) else 0
    print(f"unwatched step: {median(steps) / 1e6:.3f} ms (median of {len(steps):,})\n")
    print(f"{'layers':16} {'ratio':>8} {'lowest':>8} {'highest':>8} {'waits seen in a window':>24}")
    for name, ratios in found.items():
        if ratios:
            print(f"{name:16} {median(ratios):8.4f} {min(ratios):8.4f} {max(ratios):8.4f} {waits[name]:24,}")


def across_processes(arguments: argparse.Namespace) -> None:
    """`gpu_trace`, in processes of its own."""
    steps: dict[str, list[float]] = {"without": [], "with": []}
    for _ in range(PROCESSES):
        for kind, layer in (("without", ""), ("with", "gpu_trace")):
            command = [sys.executable, __file__, "--child", layer, "--rounds", "4", "--model", arguments.model]
            child = subprocess.run(command, capture_output=True, text=True, check=True)
            steps[kind].append(json.loads(child.stdout.splitlines()[-1]))
    ratios = [one / other for one, other in zip(steps["with"], steps["without"], strict=True)]
    print(f"{'gpu_trace':16} {median(ratios):8.4f} {min(ratios):8.4f} {max(ratios):8.4f} {'(processes in turn)':>24}")


def child(served: Served, rounds: int, layer: str) -> None:
    for _ in range(3):
        served.window(nullcontext())
    took: list[int] = []
    for _ in range(rounds):
        watch = SyncWatch(gpu=True, layers=("gpu_trace",), own_process=True, strict=False) if layer else nullcontext()
        took += served.window(watch)
    print(json.dumps(median(took)))


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
    parser.add_argument("--rounds", type=int, default=12)
    parser.add_argument("--new", type=int, default=64)
    parser.add_argument("--model", default=str(GOLDEN))
    parser.add_argument("--no-gpu", action="store_true")
    parser.add_argument("--child", default=None, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.no_gpu:
        without_a_gpu(arguments)
    elif arguments.child is not None:
        child(Served("cuda", arguments.model, new=arguments.new), arguments.rounds, arguments.child)
    else:
        print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}, {arguments.rounds} rounds")
        on_a_gpu(Served("cuda", arguments.model, new=arguments.new), arguments.rounds)
        across_processes(arguments)


if __name__ == "__main__":
    main()
