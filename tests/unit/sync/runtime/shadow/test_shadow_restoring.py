"""Leaving a shadow device puts everything back, and a torch without this or that private symbol still has one."""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import pytest
import torch
import torch.distributed.tensor  # torch loads it when it is first asked for, which is no trace of ours
from torch import distributed as dist

from dsv4prof.errors import LifetimeError, UsageError
from dsv4prof.sync.runtime.shadow import ShadowDevice, guard, tables
from shadow_programs import on_shadow

OWNERS = (
    *(torch, torch._C, torch.cuda, torch.cuda.memory, torch.cuda.random, torch.cuda.graphs, torch.cuda.nvtx),
    *(torch.accelerator, torch.version, torch.Tensor, torch.cuda.Stream, torch.cuda.Event, torch.cuda.ExternalStream),
    *(torch.cuda.CUDAGraph, torch.cuda.device, torch.cuda.graph, threading.Thread, ctypes, dist, dist.distributed_c10d),
    torch.backends.cuda,
)
without_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="a device has a guard of its own")


def snapshot() -> list[dict[str, Any]]:
    return [{name: id(value) for name, value in vars(owner).items()} for owner in OWNERS]


def guards() -> list[int | None]:
    table = (ctypes.c_void_p * 21).in_dll(tables.library("libc10.so"), guard._GUARDS)
    return list(table)


def lifts() -> bool:
    return bool(torch._C._only_lift_cpu_tensors())


@pytest.mark.parametrize("fails", [False, True])
def test_everything_is_as_it_was(fails: bool) -> None:
    torch.zeros(1)
    before = snapshot(), guards(), lifts(), torch.is_grad_enabled(), torch.backends.cudnn.enabled
    random, available = torch.get_rng_state(), torch.cuda.is_available()
    with pytest.raises(ZeroDivisionError) if fails else torch.no_grad(), ShadowDevice("cuda", lambda _: None):
        x = torch.zeros(2, device="cuda")
        with torch.cuda.stream(torch.cuda.Stream()):
            x += 1
        if fails:
            print(1 / 0)
    assert (snapshot(), guards(), lifts(), torch.is_grad_enabled(), torch.backends.cudnn.enabled) == before
    assert torch.equal(torch.get_rng_state(), random)
    assert torch.cuda.is_available() == available


def test_a_tensor_that_outlives_the_device_keeps_its_values() -> None:
    seen: list[Any] = []
    with ShadowDevice("cuda", seen.append):
        x = torch.arange(3.0, device="cuda")
    assert (x + 1).tolist() == [1, 2, 3]
    assert x.device.type == "cuda"
    assert seen == []


def test_there_is_one_device_at_a_time_and_two_vendors() -> None:
    with ShadowDevice("cuda", lambda _: None):
        with pytest.raises(LifetimeError, match="entered already"):
            ShadowDevice("hip", lambda _: None).__enter__()
        assert torch.zeros(1, device="cuda").tolist() == [0]
    with pytest.raises(UsageError, match="no shadow of 'xpu'"):
        ShadowDevice("xpu", lambda _: None)


def program(device: str) -> Any:
    """What metadata builders do."""
    lens = torch.tensor([1, 2, 0], device=device)
    rows = torch.repeat_interleave(torch.arange(3, device=device), lens)
    table = torch.zeros(3, 4, device=device)
    table[0, 1] = 5
    table[rows, 0] = 7
    host = torch.ones(2).cuda() if device == "cuda" else torch.ones(2)
    event = torch.cuda.Event() if device == "cuda" else None
    if event is not None:
        event.record()
        event.synchronize()
    return rows, table, table[rows > 0], lens[: lens[0]], int(lens.max()), host, table[rows[0]]


def no_library(name: str) -> ctypes.CDLL:
    raise OSError(f"{name} is not there")


def refused(*_: Any, **__: Any) -> Any:
    raise PermissionError("no memory may be made executable")


@without_gpu
@pytest.mark.parametrize("gone", [
    "nothing", "_set_only_lift_cpu_tensors", "_only_lift_cpu_tensors", "_ensureCUDADeviceGuardSet",
    "_cuda_getCurrentRawStream", "the libraries", "the headers", "machine code", "executable memory",
    "libraries and switch",
])  # fmt: skip
def test_each_private_symbol_may_be_missing(gone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if gone.startswith("_"):
        monkeypatch.delattr(torch._C, gone, raising=False)
    if gone in ("the libraries", "libraries and switch"):
        monkeypatch.setattr(tables, "library", no_library)
    if gone == "libraries and switch":
        monkeypatch.delattr(torch._C, "_ensureCUDADeviceGuardSet", raising=False)
    if gone == "the headers":
        monkeypatch.setattr(tables, "places", lambda *_: {})
    if gone == "machine code":
        monkeypatch.setattr(guard, "_CODE", {})
    if gone == "executable memory":
        monkeypatch.setattr(tables.mmap, "mmap", refused)
    values, seen = on_shadow(program)
    rows, table, picked, part, most, host, row = values
    assert (rows.tolist(), part.tolist(), most, host.tolist()) == ([0, 1, 1], [1], 2, [1, 1])
    assert table.tolist() == [[7, 5, 0, 0], [7, 0, 0, 0], [0, 0, 0, 0]]
    assert picked.tolist() == table[1:].tolist()
    assert row.tolist() == table[0].tolist()
    forms = [one.form for one in seen if one.kind.waits]
    expected = {"tensor-from-host", "repeat-interleave-tensor", "cuda-method", "mask-index", "slice-bound"}
    assert {*expected, "scalar-conversion", "index-0dim"} <= set(forms)


@without_gpu
def test_backward_needs_no_device() -> None:
    def train(device: str) -> Any:
        x = torch.arange(3.0, device=device, requires_grad=True)
        (x * x).sum().backward()
        return x.grad

    values, _ = on_shadow(train)
    assert values.tolist() == [0, 2, 4]
