"""Some profiler faults belong to the machine, not to the program: versions and variables tell of them before a run.

Every piece of advice rests on a public report, named where it is made. On HIP nothing is said of CUPTI, and the other
way round.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

# What torch sets in the process's own environment when CUDA graphs are profiled, and never takes back.
_CUPTI_VARIABLES = {"TEARDOWN_CUPTI": "0", "DISABLE_CUPTI_LAZY_REINIT": "1"}
_LEAST_BUILD = 1000


class Advice(msgspec.Struct, frozen=True):
    """One thing to know before recording here: `code` is a short, stable word, `hint` what to do."""

    code: str
    message: str
    hint: str


def advise(
    *, cuda: str | None, hip: str | None, cuda_graphs: bool, sessions_planned: int, env: Mapping[str, str]
) -> list[Advice]:
    """Known faults of these versions and variables. `cuda` and `hip` are None where torch has none of that kind.

    Versions are compared as numbers; one that cannot be read says nothing.
    """
    if hip is not None:
        return _of_partial_kernels(hip)
    if cuda is None:
        return []
    return [*_of_graphs(cuda, cuda_graphs, sessions_planned), *_of_leftovers(env)]


def advise_on_records(*, cuda: str | None, hip: str | None, warmup: int = 0) -> list[Advice]:
    """What may be missing from a GPU recording although nothing is wrong: for a doctor, not worth a warning each run.

    `warmup` is the plan's number of warm-up steps.
    """
    if hip is not None:
        return _of_early_setup()
    if cuda is None or warmup:
        return []
    return _of_first_kernels(cuda)


def advise_here(*, cuda_graphs: bool = False, sessions_planned: int = 1, warmup: int = 0) -> list[Advice]:
    """Both kinds of advice for this process; nothing where torch is absent or sees no CUDA or HIP device."""
    try:
        import torch
    except ImportError:
        return []
    if not torch.cuda.is_available():
        return []
    cuda = torch.version.cuda
    hip = _rocm_version(torch, os.environ)
    return [
        *advise(cuda=cuda, hip=hip, cuda_graphs=cuda_graphs, sessions_planned=sessions_planned, env=os.environ),
        *advise_on_records(cuda=cuda, hip=hip, warmup=warmup),
    ]


def _of_graphs(cuda: str, cuda_graphs: bool, sessions_planned: int) -> list[Advice]:
    """pytorch #75504, #112507, #151124."""
    if not (cuda_graphs and sessions_planned > 1 and _older(cuda, 12, 6)):
        return []
    return [
        Advice(
            code="cupti-graphs",
            message=f"with CUDA {cuda}, recording a second time in a process that replays CUDA graphs can crash it "
            "(fixed in CUDA 12.6)",
            hint="use a torch built for CUDA 12.6 or newer, record once a process, or record without graphs",
        )
    ]


def _of_leftovers(env: Mapping[str, str]) -> list[Advice]:
    """pytorch #112507: the workaround stays for the rest of the process and of those that it starts."""
    found = [f"{name}={env[name]}" for name, value in _CUPTI_VARIABLES.items() if env.get(name) == value]
    if not found:
        return []
    return [
        Advice(
            code="cupti-hooks-stay",
            message=f"{' and '.join(found)}: the profiler's hooks stay on after a recording and slow serving by 10 to "
            "20 %; an earlier recording may have left the variables behind",
            hint="restart the server without them before it is measured; CUDA 12.6 or newer needs neither",
        )
    ]


def _of_first_kernels(cuda: str) -> list[Advice]:
    """pytorch #192021, kineto #109."""
    if not _older(cuda, 13, 1):
        return []
    return [
        Advice(
            code="cupti-first-kernels",
            message=f"with CUDA {cuda}, the first kernels of a recording can be missing or have no time (fixed in CUDA "
            "13.1)",
            hint="give the plan a warm-up step (warmup=1), and do not read the first kernels of a window",
        )
    ]


def _of_early_setup() -> list[Advice]:
    """kineto #1338."""
    return [
        Advice(
            code="rocm-early-setup",
            message="on ROCm, a profiler that is set up after the first HIP call may record launches and no kernel",
            hint="make a first recording before the program touches the GPU, and look for kernels in the first trace",
        )
    ]


def _of_partial_kernels(rocm: str) -> list[Advice]:
    """Known issue of ROCm 7.2.1 (ROCm #6102)."""
    numbers = _numbers(rocm)
    # torch's own version of HIP has a build number in the third place, which tells no patch release.
    if numbers[:2] != (7, 2) or not (numbers[2:3] == (1,) or numbers[2:3] >= (_LEAST_BUILD,)):
        return []
    return [
        Advice(
            code="rocm-partial-kernels",
            message=f"ROCm {rocm}: ROCm 7.2.1 may report some or none of the kernels (fixed in 7.2.2)",
            hint="use ROCm 7.2.2 or newer, and read GPU busy times as lower bounds",
        )
    ]


def _rocm_version(torch: Any, env: Mapping[str, str]) -> str | None:
    """ROCm's own version where it can be found, else HIP's, which lacks the patch release; None without HIP."""
    hip: str | None = torch.version.hip
    if hip is None:
        return None
    try:
        installed = (Path(env.get("ROCM_PATH") or "/opt/rocm") / ".info" / "version").read_text().strip()
    except (OSError, UnicodeDecodeError):
        installed = ""
    return getattr(torch.version, "rocm", None) or installed or hip


def _older(version: str, *than: int) -> bool:
    """Whether a readable version is before `than`."""
    numbers = _numbers(version)
    return bool(numbers) and numbers < than


def _numbers(version: str) -> tuple[int, ...]:
    """The numbers that a version begins with: "7.2.1-abc" and "7.2.53211-e1a6bc5663" are both readable."""
    match = re.match(r"\s*v?(\d+(?:\.\d+)*)", version)
    return tuple(map(int, match[1].split("."))) if match else ()
