"""How many ranks share what, and which part of it is one rank's. No torch: a launcher asks before it starts one."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dsv4_engine.config import ModelConfig
from dsv4_engine.errors import EngineError
from dsv4_engine.parallel.sizes import require_divisible


@dataclass(frozen=True, kw_only=True)
class ParallelSizes:
    """`tp` ranks share each replica's attention, `dp` replicas serve requests of their own (attention DP).

    Experts are shared by all tp * dp ranks: `ep` blocks of ids, each block's experts cut into equal slices of their
    hidden size where there are more ranks than blocks. ep None is one block a rank. EngineError on sizes under 1 and
    on an ep that does not divide the ranks.
    """

    tp: int = 1
    dp: int = 1
    ep: int | None = None

    def __post_init__(self) -> None:
        for name in ("tp", "dp", "ep"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise EngineError(f"{name} is {value}", hint="choose at least 1")
        if self.world % self.expert_blocks:
            raise EngineError(
                f"ep {self.ep} does not divide the {self.world} ranks of tp {self.tp} x dp {self.dp}",
                hint=f"ep can be {', '.join(str(size) for size in _divisors(self.world))}",
            )

    @property
    def world(self) -> int:
        """All ranks."""
        return self.tp * self.dp

    @property
    def expert_blocks(self) -> int:
        return self.ep or self.world

    @property
    def expert_slices(self) -> int:
        """Ranks that share one block, each with a slice of every expert in it."""
        return self.world // self.expert_blocks

    def require_divides(self, config: ModelConfig) -> None:
        """EngineError where the model cannot be cut so: heads and groups by tp, experts' hidden size by the slices."""
        require_divisible(config, self.tp)
        if config.moe_intermediate_size % self.expert_slices:
            raise EngineError(
                f"experts of hidden size {config.moe_intermediate_size} cannot be cut into {self.expert_slices} slices",
                hint="give a larger ep, which cuts into fewer",
            )


@dataclass(frozen=True, kw_only=True)
class Place:
    """One rank's part: ranks of a replica lie together, and so do the ranks of a block of experts."""

    rank: int = 0
    sizes: ParallelSizes = ParallelSizes()

    def __post_init__(self) -> None:
        assert 0 <= self.rank < self.sizes.world, self

    @property
    def tp_rank(self) -> int:
        return self.rank % self.sizes.tp

    @property
    def dp_rank(self) -> int:
        return self.rank // self.sizes.tp

    @property
    def expert_block(self) -> int:
        return self.rank // self.sizes.expert_slices

    @property
    def expert_slice(self) -> int:
        return self.rank % self.sizes.expert_slices

    def local_experts(self, num_experts: int) -> range:
        """Ids whose weights this rank holds, whole or a slice: blocks of ceil(experts / blocks), the last shorter."""
        block = math.ceil(num_experts / self.sizes.expert_blocks)
        first = min(self.expert_block * block, num_experts)
        return range(first, min(first + block, num_experts))


ALONE = Place()
"""The only rank there is."""


def _divisors(count: int) -> list[int]:
    return [size for size in range(1, count + 1) if count % size == 0]
