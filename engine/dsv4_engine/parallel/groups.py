"""All the groups that one rank belongs to, made from one process group and its place in it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist

from dsv4_engine.parallel.experts import ExpertGroup
from dsv4_engine.parallel.group import TensorParallelGroup
from dsv4_engine.parallel.place import ParallelSizes, Place


@dataclass(frozen=True, kw_only=True)
class ParallelGroups:
    """tp: the ranks that share this replica's attention. experts: all ranks. host: all ranks, for values on the CPU."""

    place: Place
    tp: TensorParallelGroup
    experts: ExpertGroup
    host: TensorParallelGroup

    @classmethod
    def single(cls) -> ParallelGroups:
        """One rank that needs nobody."""
        return cls.tensor_parallel(TensorParallelGroup.single())

    @classmethod
    def tensor_parallel(cls, group: TensorParallelGroup) -> ParallelGroups:
        """One replica over all ranks of `group`."""
        place = Place(rank=group.rank, sizes=ParallelSizes(tp=group.size))
        experts = ExpertGroup(place=place, world=group, peers=TensorParallelGroup.single())
        return cls(place=place, tp=group, experts=experts, host=group)

    @classmethod
    def divide(cls, world: TensorParallelGroup, sizes: ParallelSizes) -> ParallelGroups:
        """Cut the ranks of `world` into replicas; every rank must call this, since making a group is a collective."""
        assert world.size == sizes.world, (world.size, sizes)
        place = Place(rank=world.rank, sizes=sizes)
        if world.size == 1:
            return cls(place=place, tp=world, experts=ExpertGroup(place=place, world=world, peers=world), host=world)
        replicas = [range(first, first + sizes.tp) for first in range(0, sizes.world, sizes.tp)]
        counterparts = [range(rank, sizes.world, sizes.tp) for rank in range(sizes.tp)]
        tp, peers = _member(replicas, world), _member(counterparts, world)
        on_cpu = dist.get_backend(world.process_group) == "gloo"
        host = world if on_cpu else _member([range(sizes.world)], world, backend="gloo")
        return cls(place=place, tp=tp, experts=ExpertGroup(place=place, world=world, peers=peers), host=host)

    def reads_on_host(self, device: torch.device) -> str | None:
        """Why collectives on `device` go through the host; None where they do not, or where there are none."""
        if self.host.size == 1 or device.type == "cpu" or dist.get_backend(self.experts.world.process_group) != "gloo":
            return None
        return "gloo carries the ranks' sums through the host"

    def exchange(self, *values: int) -> list[tuple[int, ...]]:
        """Every rank's values, by rank; waits for all ranks, on the host alone."""
        if self.host.size == 1:
            return [values]
        told = self.host.all_gather(torch.tensor([values], dtype=torch.int64), 0)
        return [tuple(row) for row in told.tolist()]


def _member(parts: Iterable[Sequence[int]], world: TensorParallelGroup, backend: str | None = None) -> Any:
    """The part that this rank is in; all ranks make all parts, in the same order."""
    mine = None
    for part in parts:
        made = dist.new_group(list(part), backend=backend)
        if world.rank in part:
            mine = TensorParallelGroup(rank=part.index(world.rank), size=len(part), process_group=made)
    assert mine is not None, "the parts do not cover the ranks"
    return mine
