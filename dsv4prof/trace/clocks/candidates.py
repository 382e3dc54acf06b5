"""Which slices can tell how ranks' clocks differ: those that all ranks of a group end together.

Much serving communication has neither "nccl" in its name nor arguments, so kernels are known by their names here. The
names are facts of NCCL, RCCL, PyTorch's symmetric memory, SGLang, vLLM, aiter, FlashInfer, TensorRT-LLM and DeepEP.
"""

from __future__ import annotations

import re

# Kernels that move data between GPUs and cannot end before every rank has come.
_KERNEL = re.compile(
    r"""nccl | rccl | mscclpp | multimem_(?:all|one_shot|reduce) | (?:one|two)_shot_all_?reduce
    | cross_device_reduce | all_?reduce | reduce_?scatter | all_?gather | all_?to_?all | lamport | quickreduce
    | deep_?ep | internode | intranode
    """,
    re.IGNORECASE | re.VERBOSE,
)
# DeepEP names kernels by what they do inside a namespace; a bare "dispatch" could be anybody's.
_EXPERT = re.compile(r"(?:internode|intranode|low_latency|deep_?ep).*(?:dispatch|combine)", re.IGNORECASE)
# These compute or copy on one GPU, whatever else their names say.
_LOCAL = re.compile(r"rmsnorm(?!.*all_?reduce)|memcpy|memset|layout|notify_local|clean_low_latency", re.IGNORECASE)
_GLOO = "gloo:"


def is_candidate(name: str, category: str) -> bool:
    """Whether a slice of this name and category is a collective that `collect` wants to see."""
    if category == "kernel":
        return is_collective_kernel(name)
    return category in ("user_annotation", "cpu_op") and name.startswith(_GLOO)


def is_collective_kernel(name: str) -> bool:
    """Whether a kernel's name says that it is one rank's part of a collective."""
    return (_KERNEL.search(name) is not None or _EXPERT.search(name) is not None) and _LOCAL.search(name) is None
