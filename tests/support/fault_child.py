"""A process that serves the real engine under a fault watch and dies in the middle of a step, as asked."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from pathlib import Path

import torch

FAULTY = "dsv4prof_test::faulty"
PHASE = "target_verify"
MESSAGE = (
    "Memory access fault by GPU node-1 (Agent handle: 0x55d2c8a1b2c0) on address {address:#x}. "
    "Reason: Page not present or supervisor privilege."
)


def die_in_child(folder: Path, how: str, *, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    """Run this module in a child: the engine serves, and the third verify calls an operator that ends the process."""
    return subprocess.run(
        [sys.executable, str(Path(__file__)), str(folder), how],
        capture_output=True, text=True, timeout=timeout, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


def main(folder: Path, how: str) -> None:
    from dsv4_engine.engine import Engine
    from dsv4_engine.options import EngineOptions
    from dsv4prof.sync.runtime.faultwatch.watch import FaultWatch
    from dsv4prof.target.hooks import ProfilingHooks
    from dsv4prof.target.watching import WatchedHooks

    torch.set_num_threads(1)
    freed: list[int] = []

    @torch.library.custom_op(FAULTY, mutates_args=())
    def faulty(table: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        if how == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif how == "segv":
            ctypes.string_at(0)
        elif how == "freed":
            print(MESSAGE.format(address=(freed[0] + 8192) & ~4095), file=sys.stderr, flush=True)
        elif how == "past":
            address = table.untyped_storage().data_ptr() + table.untyped_storage().nbytes()
            print(MESSAGE.format(address=(address + 8191) & ~4095), file=sys.stderr, flush=True)
        os.abort()
        return table.clone()

    class Hooks(WatchedHooks):
        verifies = 0

        def phase(self, phase, **facts):
            context = super().phase(phase, **facts)
            if phase.value == PHASE:
                Hooks.verifies += 1
                if Hooks.verifies == 3:
                    return _then(context, fall)
            return context

    def fall() -> None:
        scratch = torch.full((1 << 20,), 1.0)
        freed.append(scratch.data_ptr())
        del scratch
        table, index = torch.ones(300, 7), torch.tensor([1, 2, 900])
        faulty(table, index)

    watch = FaultWatch(folder, rank=0, device=None, facts={"argv": ["dsv4prof", "run"]})
    with watch:
        hooks = Hooks(watch, ProfilingHooks())
        engine = Engine(EngineOptions(model="dsv4-tiny", max_requests=2, context_len=128), hooks=hooks)
        for prompt in ([1, 2, 3, 4, 5], [6, 7, 8]):
            engine.add(prompt, max_new_tokens=24, ignore_eos=True)
        while engine.has_work:
            engine.step()


class _then:
    """A context that does one thing more once it is entered."""

    def __init__(self, context, call):
        self._context, self._call = context, call

    def __enter__(self):
        self._context.__enter__()
        self._call()

    def __exit__(self, *error):
        return self._context.__exit__(*error)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
