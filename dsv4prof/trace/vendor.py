"""Which CUDA and HIP runtime call launches, blocks or copies: asked by everyone, known here.

Kineto gives runtime rows the category `cuda_runtime` on ROCm too; only the names tell the vendor.
"""

from __future__ import annotations

GPU_CATEGORIES = frozenset({"kernel", "gpu_memcpy", "gpu_memset"})
GPU_TRACK_CATEGORIES = GPU_CATEGORIES | {"gpu_user_annotation"}
RUNTIME_CATEGORIES = frozenset({"cuda_runtime", "cuda_driver", "hip_runtime"})
HOST_OP_CATEGORIES = frozenset({"cpu_op", "operator"})
RANGE_CATEGORIES = frozenset({"user_annotation"})

# Calls that return only when work queued before them is done.
SYNCHRONIZE = {
    "cudaStreamSynchronize": "stream",
    "cudaDeviceSynchronize": "device",
    "cudaEventSynchronize": "event",
    "cuStreamSynchronize": "stream",
    "cuCtxSynchronize": "device",
    "cuEventSynchronize": "event",
    "hipStreamSynchronize": "stream",
    "hipDeviceSynchronize": "device",
    "hipEventSynchronize": "event",
}
BLOCKING_COPY = frozenset(
    {
        "cudaMemcpy",
        "cudaMemcpy2D",
        "cuMemcpyDtoH_v2",
        "cuMemcpyHtoD_v2",
        "hipMemcpy",
        "hipMemcpyWithStream",
        "hipMemcpyDtoH",
    }
)
# These block only under a condition that the trace shows: pageable memory, or a duration far above a launch.
ASYNC_COPY = frozenset(
    {
        "cudaMemcpyAsync",
        "cudaMemcpy2DAsync",
        "cuMemcpyDtoHAsync_v2",
        "cuMemcpyHtoDAsync_v2",
        "hipMemcpyAsync",
        "hipMemcpyDtoHAsync",
    }
)
ALLOCATION = frozenset(
    {
        "cudaFree",
        "cudaMalloc",
        "cudaHostAlloc",
        "cudaMallocHost",
        "cudaFreeHost",
        "hipFree",
        "hipMalloc",
        "hipHostMalloc",
        "hipHostFree",
        "hipExtMallocWithFlags",
    }
)
GRAPH_LAUNCH = frozenset({"cudaGraphLaunch", "hipGraphLaunch", "cuGraphLaunch"})


def is_launch(name: str) -> bool:
    """Whether a runtime call's name says that it starts a kernel or a graph."""
    return "Launch" in name and name.startswith(("cuda", "cu", "hip"))


def blocks(name: str) -> bool:
    """Whether a runtime call always waits for the device."""
    return name in SYNCHRONIZE or name in BLOCKING_COPY


def is_pageable_copy(gpu_name: str) -> bool:
    """Whether a GPU copy's name says pageable host memory (CUDA only; ROCm writes `Host` for both)."""
    return "Pageable" in gpu_name
