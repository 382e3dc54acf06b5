"""Attention of all three kinds: sliding window alone, with chosen compressed entries, or with all of them."""

from __future__ import annotations

import torch
from torch.nn import functional as F

from dsv4_engine.cache.pools import LayerPool
from dsv4_engine.config import CSA, SLIDING, ModelConfig
from dsv4_engine.model.compressor import Compressor
from dsv4_engine.model.indexer import Indexer
from dsv4_engine.model.norm import rms_norm
from dsv4_engine.model.rope import rotate
from dsv4_engine.model.step import StepInputs
from dsv4_engine.model.trace import Recorder
from dsv4_engine.model.weights import WeightReader
from dsv4_engine.parallel.group import TensorParallelGroup


class Attention:
    """One layer's `attn.*` weights. Query heads and output groups are split over the group's ranks; the single
    key-value vector of each token and everything compressed is the same on all of them."""

    def __init__(self, config: ModelConfig, weights: WeightReader, *, ratio: int, group: TensorParallelGroup) -> None:
        assert config.num_attention_heads % group.size == 0, "attention heads do not divide over the ranks"
        assert config.o_groups % group.size == 0, "output groups do not divide over the ranks"
        self._group, self._ratio, self._eps = group, ratio, config.rms_norm_eps
        self._heads = config.num_attention_heads // group.size
        self._groups = config.o_groups // group.size
        self._scale = config.head_dim**-0.5
        self._latent_sizes = (config.q_lora_rank, config.head_dim)
        self._wqkv_a = torch.cat((weights.matrix("wq_a.weight"), weights.matrix("wkv.weight")))
        self._q_norm, self._kv_norm = weights.precise("q_norm.weight"), weights.precise("kv_norm.weight")
        self._wq_b = weights.matrix("wq_b.weight")
        self._sink = weights.precise("attn_sink")
        self._wo_a = weights.matrix("wo_a.weight").unflatten(0, (self._groups, -1)).transpose(1, 2).contiguous()
        self._wo_b = weights.matrix("wo_b.weight")
        self._compressor = (
            None
            if ratio == SLIDING
            else Compressor(config, weights.below("compressor"), ratio=ratio, dim=config.head_dim)
        )
        self._indexer = Indexer(config, weights.below("indexer"), group) if ratio == CSA else None

    def __call__(self, x: torch.Tensor, step: StepInputs, pool: LayerPool, record: Recorder) -> torch.Tensor:
        """(T, D) normed input -> (T, D).

        A pass with streams stores its window rows first and reads all keys from the pool. Any other stores them last:
        a chunk may be longer than a ring, and must not overwrite what its first rows still read.
        """
        turn = step.rotations.rows[self._ratio]
        q_latent, kv = F.linear(x, self._wqkv_a).split(self._latent_sizes, 1)
        q_latent = rms_norm(q_latent, self._q_norm, self._eps)
        kv = rotate(rms_norm(kv, self._kv_norm, self._eps), turn)
        query = rms_norm(F.linear(q_latent, self._wq_b).unflatten(1, (self._heads, -1)), None, self._eps)
        query = rotate(query, turn[:, None])
        meta, backend, plan = step.meta, step.backend, step.plan
        streams = meta.unified.streams
        if streams is not None:
            backend.store(pool.unified, kv, meta, plan)
        self._compress(x, q_latent, step, pool, record)
        mixed = backend.attend(
            query, kv, pool.unified, meta, plan, ratio=self._ratio, sink=self._sink, scale=self._scale
        )
        if streams is None:
            if meta.tail_saves is not None and pool.tail is not None:
                pool.tail.window[meta.tail_saves.tail] = meta.tail_saves.windows(kv, pool.unified)
            backend.store(pool.unified, kv, meta, plan)
        output = self._project(rotate(mixed, turn.conj()[:, None]).to(x.dtype))
        record("attn_out", output)
        return output

    def _compress(
        self, x: torch.Tensor, q_latent: torch.Tensor, step: StepInputs, pool: LayerPool, record: Recorder
    ) -> None:
        """Compressed rows that this step completes, and the indexer's choice among all."""
        if self._compressor is None:
            return
        assert pool.attention is not None
        meta, tail = step.meta, pool.tail
        plan, turn = meta.compress[self._ratio], step.rotations.entries[self._ratio]
        self._compressor(x, plan, pool.attention, turn, meta.tail_saves, tail.attention_state if tail else None)
        if self._indexer is not None:
            assert pool.indexer is not None
            chosen = self._indexer(x, q_latent, step, pool.indexer, tail.indexer_state if tail else None)
            record("index_topk", chosen)

    def _project(self, mixed: torch.Tensor) -> torch.Tensor:
        """(T, H, d) -> (T, D) through a low-rank map of each group of heads, summed over the ranks."""
        grouped = mixed.reshape(len(mixed), self._groups, -1).transpose(0, 1)
        low_rank = torch.bmm(grouped, self._wo_a).transpose(0, 1).flatten(1)
        return self._group.all_reduce(F.linear(low_rank, self._wo_b))
