"""The process that makes one mistake."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

from dsv4prof.errors import Dsv4profError
from dsv4prof.recorder.faults import cost, release_trial
from dsv4prof.recorder.faults.fault import Program
from dsv4prof.recorder.faults.table import fault_named

USAGE_STATUS = 64


def main(words: list[str]) -> int:
    """Run the program that `words` name: a fault and its half, and the folder for what it leaves. Its exit status."""
    program = program_of(*words[:2]) if len(words) == 3 else None
    if program is None:
        print("usage: python -m dsv4prof.recorder.faults NAME plain|ours FOLDER", file=sys.stderr)
        return USAGE_STATUS
    load()
    return run(program, Path(words[2]).absolute())


def load() -> None:
    """What every half needs, and takes long."""
    import torch
    import torch.profiler

    torch.set_num_threads(1)


def load_what_the_first_start_loads() -> None:
    """On torch 2.13 the first profiler of a process imports torch._inductor, and all that hangs on it: 1.4 s."""
    import torch

    if hasattr(torch, "_inductor"):
        import torch._inductor.config


def run(program: Program, folder: Path) -> int:
    """The exit status is the program's own; an error of dsv4prof is one sentence on stderr and its exit status, as on
    the command line.
    """
    # A crash is what is expected here: nobody wants to find the cores.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.chdir(folder)
    try:
        program(folder)
    except Dsv4profError as error:
        print(f"error: {error.message}", file=sys.stderr, flush=True)
        return error.exit_code
    return 0


def program_of(name: str, half: str) -> Program | None:
    if half == "ours" and name in release_trial.PROGRAMS:
        return release_trial.PROGRAMS[name]
    if name == cost.NAME:
        return cost.PROGRAMS.get(half)
    fault = fault_named(name)
    return {"plain": fault.plain, "ours": fault.ours}.get(half) if fault is not None else None
