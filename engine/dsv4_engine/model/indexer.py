"""Chooses which compressed entries a query attends, so that ratio-4 attention costs the same at any length."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from dsv4_engine.attention.blocks import row_blocks
from dsv4_engine.attention.core import IndexerMetadata
from dsv4_engine.attention.metadata import DSV4Metadata
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
        self,
        x: torch.Tensor,
        q_latent: torch.Tensor,
        step: StepInputs,
        pool: CompressorPool,
        tail: torch.Tensor | None,
    ) -> torch.Tensor:
        """Entries to attend for rows x (T, D) with query latents (T, q_lora_rank): (T, K) int64, best first, -1 = none.

        K = min(index_topk, entries of the longest request). They are written into the metadata too.
        """
        meta = step.meta
        indexer = meta.indexer
        assert indexer is not None
        turn = step.rotations.entries[CSA]
        self._compressor(x, meta.compress[CSA], pool, turn, meta.tail_saves, tail)
        query = F.linear(q_latent, self._wq_b).unflatten(1, (self._heads, -1))
        query = rotate(query, step.rotations.rows[CSA][:, None])
        head_weights = F.linear(x, self._weights_proj).float() * self._head_scale
        cost = indexer.max_c4_seq_len * (query.shape[-1] + self._heads)
        parts = [
            self._choose(query[block].float(), head_weights[block], indexer, pool.keys, block)
            for block in row_blocks(len(x), cost)
        ]
        chosen, rows = parts[0] if len(parts) == 1 else map(torch.cat, zip(*parts, strict=True))
        _write_choice(meta, chosen, rows)
        return chosen

    def _choose(
        self, query: torch.Tensor, head_weights: torch.Tensor, meta: IndexerMetadata, keys: torch.Tensor, block: slice
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Entries (rows, K) and the compressed rows that hold them, -1 for none."""
        entry = torch.arange(meta.max_c4_seq_len, device=query.device)
        rows = meta.rows_of(block)
        visible = meta.c4_seq_lens[block, None]
        per_head = torch.bmm(query, F.embedding(rows, keys).float().transpose(1, 2)).relu_()
        scores = self._group.all_reduce(torch.bmm(head_weights[:, None], per_head)[:, 0])
        scores.masked_fill_(entry >= visible, float("-inf"))
        # Stable, because few heads give exact ties at zero, and then every chunking must choose the same entries.
        order = torch.sort(scores, descending=True, stable=True).indices[:, : self._topk]
        exists = entry[: self._topk] < visible
        return torch.where(exists, order, -1), torch.where(exists, rows.gather(1, order), -1)


def _write_choice(meta: DSV4Metadata, chosen: torch.Tensor, rows: torch.Tensor) -> None:
    """Where backends look for it: the core's index tables, and the tails of the ratio-4 streams."""
    core, streams = meta.core, meta.unified.streams
    assert core.c4_sparse_raw_indices is not None and core.c4_sparse_page_indices is not None
    core.c4_sparse_raw_indices.copy_(chosen)
    core.c4_sparse_page_indices.copy_(rows)
    if streams is not None:
        assert streams.csa_indices is not None and streams.csa_tail_loc is not None
        streams.csa_indices[streams.csa_tail_loc] = rows + meta.unified.swa_pages
