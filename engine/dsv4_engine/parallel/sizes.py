"""Which tensor-parallel sizes a model can be divided into. No torch: a launcher asks before it starts any rank."""

from __future__ import annotations

import math

from dsv4_engine.config import CSA, ModelConfig
from dsv4_engine.errors import EngineError


def require_divisible(config: ModelConfig, size: int) -> None:
    """Refuse (EngineError) a tensor-parallel size that does not divide the heads, output groups or indexer heads."""
    legal = legal_sizes(config)
    if size in legal:
        return
    parts = {"attention heads": config.num_attention_heads, "output groups": config.o_groups}
    if CSA in config.compress_ratios:
        parts["indexer heads"] = config.index_n_heads
    named = next(f"{count} {what}" for what, count in parts.items() if size < 1 or count % size)
    raise EngineError(
        f"the model's {named} cannot be divided over {size} ranks",
        hint=f"tensor-parallel sizes that work for this model: {', '.join(map(str, legal))}",
    )


def legal_sizes(config: ModelConfig) -> tuple[int, ...]:
    """Every tensor-parallel size that this model can be cut into, ascending."""
    common = math.gcd(config.num_attention_heads, config.o_groups)
    if CSA in config.compress_ratios:
        common = math.gcd(common, config.index_n_heads)
    return tuple(size for size in range(1, common + 1) if common % size == 0)
