"""Categories of events that a file leaves without one: what their names and arguments tell."""

from __future__ import annotations

from typing import Any

STAGES = {
    "Kernel": "kernel",
    "Memcpy": "gpu_memcpy",
    "Memset": "gpu_memset",
    "Annotation": "gpu_user_annotation",
}
OTHER_STAGE = "gpu_stage"


def category_of(name: str, args: dict[str, Any]) -> str:
    """The category that Kineto's JSON would give; user annotations look like operators and count as those."""
    if "cuda_sync_kind" in args:
        return "cuda_sync"
    if "cbid" in args:
        return "cuda_driver" if name.startswith("cu") and not name.startswith("cuda") else "cuda_runtime"
    if "grid" in args or "blocks per SM" in args:
        return "kernel"
    if name.startswith("Memcpy "):
        return "gpu_memcpy"
    if name.startswith("Memset "):
        return "gpu_memset"
    if "Python id" in args:
        return "python_function"
    if "External id" in args or "Ev Idx" in args:
        return "cpu_op"
    return "overhead" if name == "Activity Buffer Request" else ""
