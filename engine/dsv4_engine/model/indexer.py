"""Chooses which compressed entries a query attends, so that ratio-4 attention costs the same at any length."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from dsv4_engine.attention.compress_plan import CompressMeta
from dsv4_engine.attention.reference import row_blocks
from dsv4_engine.cache.pools import CompressorPool
from dsv4_engine.config import CSA, ModelConfig
from dsv4_engine.model.compressor import Compressor
from dsv4_engine.model.rope import rotate
from dsv4_engine.model.step import StepInputs
from dsv4_engine.model.weights import WeightReader
from dsv4_engine.parallel.group import TensorParallelGroup


class Indexer:
    """The `attn.indexer.*` weights of a ratio-4 layer; heads are split over the group's ranks.

    The Hadamard rotation of queries and keys is left out: without quantisation it changes no dot product.
    """

    def __init__(self, config: ModelConfig, weights: WeightReader, group: TensorParallelGroup) -> None:
        assert config.index_n_heads % group.size == 0, "index heads do not divide over the ranks"
        self._group = group
        self._heads = config.index_n_heads // group.size
        self._topk = config.index_topk
        self._head_scale = config.index_head_dim**-0.5 * config.index_n_heads**-0.5
        self._wq_b = weights.matrix("wq_b.weight")
        self._weights_proj = weights.matrix("weights_proj.weight")
        self._compressor = Compressor(config, weights.below("compressor"), ratio=CSA, dim=config.index_head_dim)

    def __call__(
        self, x: torch.Tensor, q_latent: torch.Tensor, step: StepInputs, pool: CompressorPool
    ) -> torch.Tensor:
        """Entries to attend for rows x (T, D) with query latents (T, q_lora_rank): (T, K) int64, best first, -1 = none.

        K = min(index_topk, entries of the longest request).
        """
        plan = step.meta.compress[CSA]
        self._compressor(x, plan, pool, step.rotations.entries[CSA])
        query = F.linear(q_latent, self._wq_b).unflatten(1, (self._heads, -1))
        query = rotate(query, step.rotations.rows[CSA][:, None])
        head_weights = F.linear(x, self._weights_proj).float() * self._head_scale
        cost = plan.max_entries * (query.shape[-1] + self._heads)
        chosen = [
            self._choose(query[block].float(), head_weights[block], plan, pool.entries, block)
            for block in row_blocks(len(x), cost)
        ]
        return chosen[0] if len(chosen) == 1 else torch.cat(chosen)

    def _choose(
        self, query: torch.Tensor, head_weights: torch.Tensor, plan: CompressMeta, entries: torch.Tensor, block: slice
    ) -> torch.Tensor:
        entry = torch.arange(plan.max_entries, device=query.device)
        visible = plan.visible[block, None]
        keys = entries[plan.entry_base[block, None] + entry].float()
        per_head = torch.bmm(query, keys.transpose(1, 2)).relu_()
        scores = self._group.all_reduce(torch.bmm(head_weights[:, None], per_head)[:, 0])
        scores.masked_fill_(entry >= visible, float("-inf"))
        # Stable, because few heads give exact ties at zero, and then every chunking must choose the same entries.
        order = torch.sort(scores, descending=True, stable=True).indices[:, : self._topk]
        return torch.where(entry[: self._topk] < visible, order, -1)
