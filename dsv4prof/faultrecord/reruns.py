"""The run that narrows a fault down: the same command with the work made to fail where it is launched."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import msgspec

PLACEHOLDER = ("YOUR", "COMMAND")
_RECORD = "dsv4prof audit run --fault-watch --"


class Rerun(msgspec.Struct, frozen=True):
    """A command line and what it tells."""

    command: str
    tells: str


def reruns(vendor: str, argv: Sequence[str], *, hang: bool = False, triton: bool = False) -> list[Rerun]:
    """What to run next, first the cheapest. `vendor` is amd, nvidia or cpu where no device had a part, "" where it
    is not known; then both are told.
    """
    command = shlex.join(argv or PLACEHOLDER)
    if vendor == "cpu":
        return _cpu(command, hang=hang)
    found: list[Rerun] = []
    if vendor in ("amd", ""):
        found += _amd(command, hang=hang)
    if vendor in ("nvidia", ""):
        found += _nvidia(command, hang=hang)
    if not argv:
        found.append(
            Rerun(f"{_RECORD} {command}", "keeps the last launches and their memory, which a log does not tell")
        )
    if triton:
        found.append(
            Rerun(f"TRITON_DEBUG=1 {command}", "device asserts and bounds in Triton kernels are compiled in, and named")
        )
    return found


def _cpu(command: str, *, hang: bool) -> list[Rerun]:
    if hang:
        return [
            Rerun(f"TORCH_DISTRIBUTED_DEBUG=DETAIL {command}", "collectives check that all ranks call the same one")
        ]
    return [
        Rerun(f"PYTHONFAULTHANDLER=1 {command}", "a crash in C code prints Python's stacks of all threads"),
        Rerun(f"gdb -batch -ex run -ex bt --args {command}", "stops at the crash, with the stack of the C code"),
    ]


def _amd(command: str, *, hang: bool) -> list[Rerun]:
    serial = Rerun(
        f"AMD_SERIALIZE_KERNEL=3 AMD_SERIALIZE_COPY=3 {command}",
        "every kernel and copy waits before and after it: the last record of the ring is the one at fault",
    )
    log = Rerun(
        f"AMD_LOG_LEVEL=3 AMD_SERIALIZE_KERNEL=3 {command}",
        "the runtime prints each kernel's name as it is launched; the last one before the message is at fault",
    )
    pages = Rerun(
        f"PYTORCH_NO_HIP_MEMORY_CACHING=1 AMD_SERIALIZE_KERNEL=3 {command}",
        "without torch's cache a freed buffer is unmapped, so that a use after free faults at once (slow)",
    )
    debug = Rerun(
        f"HSA_ENABLE_DEBUG=1 rocgdb --args {command}", "stops at the wave that faults, with its program counter"
    )
    return [serial, log] if hang else [serial, log, pages, debug]


def _nvidia(command: str, *, hang: bool) -> list[Rerun]:
    blocking = Rerun(
        f"CUDA_LAUNCH_BLOCKING=1 {command}",
        "every launch waits: the error is raised by the call that caused it (graph replays count as one call)",
    )
    memcheck = Rerun(
        f"PYTORCH_NO_CUDA_MEMORY_CACHING=1 compute-sanitizer --tool memcheck --target-processes all {command}",
        "names the kernel, the thread and the bytes past the allocation (slow; with torch's cache small overruns "
        "stay inside its blocks)",
    )
    core = Rerun(
        f"CUDA_ENABLE_COREDUMP_ON_EXCEPTION=1 CUDA_COREDUMP_FILE=fault.%p {command}",
        "leaves a dump that cuda-gdb opens at the instruction that faulted",
    )
    sync = Rerun(f"compute-sanitizer --tool synccheck {command}", "finds barriers that not every thread reaches (slow)")
    return [blocking, sync] if hang else [blocking, memcheck, core]
