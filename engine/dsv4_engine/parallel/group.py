"""The ranks that share one model, behind two collectives; a group of one rank costs nothing and needs no set-up."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from dsv4_engine.errors import EngineError


@dataclass(frozen=True, kw_only=True)
class TensorParallelGroup:
    """`rank` of `size`; every rank must make the same calls in the same order, with equal shapes."""

    rank: int
    size: int
    process_group: Any = None

    def __post_init__(self) -> None:
        assert 0 <= self.rank < self.size, self

    @classmethod
    def single(cls) -> TensorParallelGroup:
        return cls(rank=0, size=1)

    @classmethod
    def from_process_group(cls, process_group: Any) -> TensorParallelGroup:
        """All ranks of a `torch.distributed` process group."""
        return cls(
            rank=dist.get_rank(process_group), size=dist.get_world_size(process_group), process_group=process_group
        )

    def all_reduce(self, tensor: torch.Tensor) -> torch.Tensor:
        """Sum over the ranks; may overwrite `tensor`. Raises EngineError when a rank is lost."""
        if self.size == 1:
            return tensor
        tensor = tensor.contiguous()
        self._collective(lambda: dist.all_reduce(tensor, group=self.process_group))
        return tensor

    def all_gather(self, tensor: torch.Tensor, dim: int) -> torch.Tensor:
        """The ranks' tensors joined along `dim`, in rank order. Raises EngineError when a rank is lost."""
        if self.size == 1:
            return tensor
        tensor = tensor.contiguous()
        parts = [torch.empty_like(tensor) for _ in range(self.size)]
        self._collective(lambda: dist.all_gather(parts, tensor, group=self.process_group))
        return torch.cat(parts, dim)

    def _collective(self, call: Callable[[], Any]) -> None:
        try:
            call()
        except RuntimeError as error:
            reason = str(error).splitlines()[0]
            raise EngineError(
                f"rank {self.rank} lost the other ranks of its group: {reason}",
                hint="look at the output of the rank that ended first",
            ) from error


def init_process_group(
    *,
    rank: int,
    size: int,
    device: torch.device,
    init_method: str | None = None,
    master_addr: str = "127.0.0.1",
    master_port: int | None = None,
    timeout_s: float = 60.0,
) -> TensorParallelGroup:
    """Join `size` ranks over NCCL (RCCL on HIP) for a GPU and gloo for a CPU.

    Ranks meet at `init_method` (`tcp://...`, `file://...`, `env://`) or else at `master_addr:master_port`.
    Raises EngineError where they cannot meet within `timeout_s` seconds or the port is taken.
    """
    if init_method is None:
        assert master_port is not None, "give init_method or master_port"
        init_method = f"tcp://{master_addr}:{master_port}"
    backend = "nccl" if device.type == "cuda" else "gloo"
    try:
        dist.init_process_group(
            backend,
            init_method=init_method,
            rank=rank,
            world_size=size,
            timeout=timedelta(seconds=timeout_s),
            device_id=device if device.type == "cuda" else None,
        )
    except (dist.DistError, RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise EngineError(
            f"rank {rank} of {size} cannot join its group at {init_method}: {reason}",
            hint="is the port in use, and did every rank start?",
        ) from error
    return TensorParallelGroup.from_process_group(dist.group.WORLD)


def close(group: TensorParallelGroup) -> None:
    """Leave the group, and all made from it, together with the others; a group of one never joined anything.

    A rank that is gone while others still talk makes gloo abort them, so all wait for all first. Where one is lost
    there is nothing to wait for, and that has been told by the collective that noticed it.
    """
    if group.process_group is not None and dist.is_initialized():
        with suppress(RuntimeError):
            dist.barrier(group.process_group)
        dist.destroy_process_group(group.process_group)
