"""How small host tables reach the device without a wait, and the three ways in which that goes wrong in practice.

A copy from pinned memory returns before it has happened. The source must not change until then, so every buffer here is
owned and is written again only after the event behind its last copy. `Faults` takes such safeguards away one by one,
for tools that must find their absence; nothing sets them in service.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch

from dsv4_engine.errors import EngineError

_HOST_TO_DEVICE = 1
_MULTIPLIER, _MODULUS = 31, 2**31 - 1


@dataclass(frozen=True, kw_only=True)
class Faults:
    """Safeguards left out on purpose. All are off in service.

    freed_staging: a staging buffer is free again as soon as its copy is queued, so that the next upload may overwrite
    what has not been copied yet (the hypothesis for the open fault behind sglang #29202). On a GPU the copy is a raw
    memcpy that no allocator knows of; on a CPU it runs when its result is first used, which shows the same mixture.
    padded_output_size: the metadata's row expansion is told a padded size instead of the exact one. A CPU refuses it,
    GPUs fail inside the kernel.
    no_war_barrier: request-table writes do not wait for the forward that may still read the table. No effect on a CPU,
    where nothing runs beside.
    """

    freed_staging: bool = False
    padded_output_size: bool = False
    no_war_barrier: bool = False


NO_FAULTS = Faults()


class Staged:
    """An upload under way. checksum: of the values as they were given, see `checksum_of`."""

    def __init__(self, target: torch.Tensor, checksum: int, finish: Callable[[], object] | None = None) -> None:
        self._target, self._finish = target, finish
        self.checksum = checksum

    def tensor(self) -> torch.Tensor:
        """The values on the device, in the order of its stream."""
        if self._finish is not None:
            self._finish()
            self._finish = None
        return self._target


def checksum_of(values: torch.Tensor) -> torch.Tensor:
    """() int64 on the values' device: a sum weighted by place, modulo 2**31 - 1, so that swapped values count too."""
    flat = values.flatten().to(torch.int64)
    weights = torch.arange(1, len(flat) + 1, device=flat.device) * _MULTIPLIER % _MODULUS
    return (flat % _MODULUS * weights % _MODULUS).sum() % _MODULUS


def _host_checksum(values: Sequence[int]) -> int:
    weighted = (value % _MODULUS * (place * _MULTIPLIER % _MODULUS) for place, value in enumerate(values, 1))
    return sum(product % _MODULUS for product in weighted) % _MODULUS


@dataclass(kw_only=True)
class _Buffer:
    values: torch.Tensor
    copied: torch.cuda.Event | None = field(default=None)


class StagingRing:
    """Host buffers for int64 uploads, reused in turn. waits: uploads that had to wait for a buffer's last copy."""

    def __init__(self, device: torch.device, *, buffers: int = 8, faults: Faults = NO_FAULTS) -> None:
        self._device, self.faults = device, faults
        self._pinned = device.type == "cuda"
        self._buffers = [_Buffer(values=self._host(0)) for _ in range(1 if faults.freed_staging else buffers)]
        self._next = 0
        self.waits = 0

    def upload(self, rows: Sequence[Sequence[int]]) -> Staged:
        """(len(rows), n) int64 on the device; all rows have the same length n >= 1."""
        flat = [value for row in rows for value in row]
        buffer = self._take(len(flat))
        source = buffer.values[: len(flat)]
        # dsv4prof: allow[DSV108] host to host: the buffer is the upload's source
        source.copy_(torch.tensor(flat, dtype=torch.int64))
        target = torch.empty(len(rows), len(rows[0]), dtype=torch.int64, device=self._device)
        checksum = _host_checksum(flat) if self.faults.freed_staging else 0
        if self.faults.freed_staging:
            return self._copy_and_forget(target, source, checksum)
        target.view(-1).copy_(source, non_blocking=True)
        if self._pinned:
            buffer.copied = torch.cuda.Event()
            buffer.copied.record()
        return Staged(target, checksum)

    def _take(self, count: int) -> _Buffer:
        buffer = self._buffers[self._next]
        self._next = (self._next + 1) % len(self._buffers)
        if buffer.copied is not None and not buffer.copied.query():
            self.waits += 1
            # dsv4prof: allow[DSV106] the ring is full: back-pressure, counted, instead of an overwritten table
            buffer.copied.synchronize()
        if len(buffer.values) < count:
            buffer.values = self._host(2 * count)
        return buffer

    def _copy_and_forget(self, target: torch.Tensor, source: torch.Tensor, checksum: int) -> Staged:
        if self._pinned:
            _raw_copy(target, source)
            return Staged(target, checksum)
        return Staged(target, checksum, lambda: target.view(-1).copy_(source))

    def _host(self, count: int) -> torch.Tensor:
        return torch.zeros(count, dtype=torch.int64, pin_memory=self._pinned and count > 0)


def _raw_copy(target: torch.Tensor, source: torch.Tensor) -> None:
    """cudaMemcpyAsync or hipMemcpyAsync on the current stream, unknown to torch's allocators."""
    copy = _memcpy_async()
    stream = torch.cuda.current_stream(target.device).cuda_stream
    status = copy(
        ctypes.c_void_p(target.data_ptr()), ctypes.c_void_p(source.data_ptr()),
        ctypes.c_size_t(source.nbytes), ctypes.c_int(_HOST_TO_DEVICE), ctypes.c_void_p(stream),
    )  # fmt: skip
    if status:
        raise EngineError(f"the raw copy to {target.device} failed with status {status}", hint="see the driver's log")


def _memcpy_async() -> Callable[..., int]:
    """The runtime's function out of the library that torch has loaded."""
    if torch.version.hip:
        function, names = "hipMemcpyAsync", [f"libamdhip64.so{suffix}" for suffix in ("", ".7", ".6", ".5")]
    else:
        major = (torch.version.cuda or "").split(".")[0]
        function, names = "cudaMemcpyAsync", [f"libcudart.so.{major}", "libcudart.so"]
    for name in names:
        try:
            return getattr(ctypes.CDLL(name), function)
        except (OSError, AttributeError):
            continue
    raise EngineError(f"{function} was not found in {', '.join(names)}", hint="leave freed_staging off")
