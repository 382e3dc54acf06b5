"""What Kineto's rows are reduced to, and what is said where there is no device."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from dsv4prof.errors import UsageError
from dsv4prof.sync.runtime.truth.torch_probe import digest, require_device


def event(name: str, cat: str, ts: float, dur: float = 1.0, correlation: int = 0) -> dict[str, Any]:
    return {"ph": "X", "name": name, "cat": cat, "ts": ts, "dur": dur, "args": {"correlation": correlation}}


RANGE = event("dsv4prof.truth", "user_annotation", 100.0, 30_000.0)


def test_calls_inside_the_range_count_with_the_device_rows_that_they_caused() -> None:
    seen = digest(
        [
            event("cudaStreamSynchronize", "cuda_runtime", 50.0, correlation=1),
            RANGE,
            event("aten::_local_scalar_dense", "cpu_op", 105.0, 20_000.0),
            event("aten::item", "cpu_op", 104.0, 20_001.0),
            event("cudaMemcpyAsync", "cuda_runtime", 106.0, correlation=2),
            event("cudaStreamSynchronize", "cuda_runtime", 107.0, 19_500.0, correlation=3),
            event("Memcpy DtoH (Device -> Pinned)", "gpu_memcpy", 21_000.0, correlation=2),
            event("Stream Sync", "cuda_sync", 107.0, correlation=3),
            event("Stream Sync", "cuda_sync", 50.0, correlation=1),
            event("cudaDeviceSynchronize", "cuda_runtime", 40_000.0, correlation=4),
        ]
    )
    assert seen.runtime_sync == {"cudaStreamSynchronize": 1}
    assert seen.memcpy == {"Memcpy DtoH (Device -> Pinned)": 1}
    assert seen.cuda_sync == {"Stream Sync": 1}
    assert seen.waited_ms == {"cudaStreamSynchronize": 19.5}
    assert seen.ops == ["aten::item", "aten::_local_scalar_dense"]


def test_a_silent_copy_is_named_by_its_duration() -> None:
    seen = digest([RANGE, event("cudaMemcpyAsync", "cuda_runtime", 106.0, 20_000.0, correlation=2)])
    assert seen.runtime_sync == {}
    assert seen.waited_ms == {"cudaMemcpyAsync": 20.0}


def test_a_blocking_copy_of_rocm_is_one_call() -> None:
    seen = digest([RANGE, event("hipMemcpyWithStream", "cuda_runtime", 106.0, 20_000.0, correlation=2)])
    assert seen.runtime_sync == {"hipMemcpyWithStream": 1}


def test_a_trace_without_the_range_says_nothing() -> None:
    assert digest([event("cudaStreamSynchronize", "cuda_runtime", 50.0)]).runtime_sync == {}


def test_a_machine_without_a_device_gets_one_sentence() -> None:
    torch = pytest.importorskip("torch", reason="the engine extra is not installed")
    if torch.cuda.is_available():
        pytest.skip("there is a device here")
    with pytest.raises(UsageError, match="no CUDA or HIP device"):
        require_device()


def test_a_machine_without_torch_gets_one_sentence() -> None:
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "from dsv4prof.cli import console; from dsv4prof.cli.app import app\n"
        "sys.exit(console.guarded(lambda: app(['truth', 'measure'], standalone_mode=False)))"
    )
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert child.returncode == 2
    assert child.stderr.splitlines()[0] == "error: measuring needs torch, which is not installed"
