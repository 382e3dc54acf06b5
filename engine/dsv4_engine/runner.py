"""Runs forward passes of the target model and of its MTP layer on caches, for any mix of requests."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import torch

from dsv4_engine.attention.metadata import build_metadata
from dsv4_engine.batch import ForwardBatch
from dsv4_engine.cache.layout import CacheLayout, CacheShape
from dsv4_engine.cache.pools import allocate_layers
from dsv4_engine.config import SLIDING, ModelConfig
from dsv4_engine.hooks import StepHooks
from dsv4_engine.model.mtp import MtpModel
from dsv4_engine.model.rope import RotaryEmbedding
from dsv4_engine.model.step import StepInputs
from dsv4_engine.model.target import TargetModel
from dsv4_engine.model.trace import TraceRecorder
from dsv4_engine.model.vocabulary import Vocabulary
from dsv4_engine.model.weights import WeightReader
from dsv4_engine.parallel.group import TensorParallelGroup

__all__ = ["CacheShape", "ModelRunner", "MtpOutput", "TargetOutput"]


@dataclass(frozen=True)
class TargetOutput:
    """logits: (R, V) float32 of the asked rows. streams: (T, hc, D) before the stream head, for MTP."""

    logits: torch.Tensor
    streams: torch.Tensor


@dataclass(frozen=True)
class MtpOutput:
    """logits: (R, V) float32 for the token after the next. streams: (T, hc, D), the MTP layer's own, for chaining."""

    logits: torch.Tensor
    streams: torch.Tensor


class ModelRunner:
    """Owns the weights and caches of one rank.

    weights: official names, dequantised, sliced for this rank. The MTP layer is there if its weights are.
    exact_num_tokens picks the form of the metadata expansion, see `attach_prefill_meta`; results are the same.
    A slot needs no clearing between requests: no read goes beyond what its own request has written.
    """

    def __init__(
        self,
        config: ModelConfig,
        weights: Mapping[str, torch.Tensor] | Iterable[tuple[str, torch.Tensor]],
        *,
        group: TensorParallelGroup,
        device: torch.device,
        dtype: torch.dtype,
        cache: CacheShape,
        exact_num_tokens: bool,
        hooks: StepHooks,
    ) -> None:
        reader = WeightReader(dict(weights), device=device, dtype=dtype)
        self._exact_num_tokens, self._hooks = exact_num_tokens, hooks
        self.layout = CacheLayout.plan(config, cache)
        self._rotary = RotaryEmbedding(config, device)
        vocabulary = Vocabulary(config, reader, group)
        self._target = TargetModel(config, reader, vocabulary, group)
        self._mtp = (
            MtpModel(config, reader.below("mtp.0"), vocabulary, group)
            if config.has_mtp and reader.has("mtp.0.e_proj.weight")
            else None
        )
        self._ratios = config.compress_ratios[: config.num_hidden_layers]
        ratios = (*self._ratios, *((SLIDING,) if self._mtp else ()))
        pools = allocate_layers(config, self.layout, ratios, device=device, dtype=dtype)
        self._pools = pools[: config.num_hidden_layers]
        self._mtp_pool = pools[-1] if self._mtp else None

    @property
    def has_mtp(self) -> bool:
        return self._mtp is not None

    @torch.no_grad()
    def forward_target(self, batch: ForwardBatch, *, logits_rows: torch.Tensor | None = None) -> TargetOutput:
        """One pass of the main model; `logits_rows` (R,) int64 selects the rows that get logits, None takes all."""
        streams = self._target(self._step(batch, self.layout.entries), self._pools)
        return TargetOutput(self._target.head(streams, logits_rows), streams)

    @torch.no_grad()
    def forward_mtp(
        self, batch: ForwardBatch, streams: torch.Tensor, *, logits_rows: torch.Tensor | None = None
    ) -> MtpOutput:
        """One pass of the MTP layer: the row at p takes streams (T, hc, D) of p and, as input id, the token at p+1."""
        assert self._mtp is not None and self._mtp_pool is not None, "the checkpoint has no MTP layer"
        own = self._mtp(self._step(batch, ()), streams, self._mtp_pool)
        return MtpOutput(self._mtp.head(own, logits_rows), own)

    @torch.no_grad()
    def trace_target(self, batch: ForwardBatch) -> dict[str, torch.Tensor]:
        """A pass of one request from its first token, with each layer's quantities as `L{i}.{name}` and the logits.

        Names: {attn,ffn}_hc.{collapsed,post,comb}, attn_out, moe_out, router_{indices,weights}, streams_out,
        and where they apply compressed_kv (entries, head_dim) and index_topk (T, K).
        """
        assert batch.num_requests == 1 and batch.seq_lens_host == batch.extend_lens_host, "trace one whole prompt"
        trace = TraceRecorder()
        streams = self._target(self._step(batch, self.layout.entries), self._pools, trace)
        # dsv4prof: allow[DSV101] a traced forward, for checks alone
        slot = int(batch.req_slots)
        for index, (ratio, pool) in enumerate(zip(self._ratios, self._pools, strict=True)):
            if pool.attention is not None:
                first = slot * self.layout.entries[ratio]
                entries = pool.attention.entries[first : first + batch.num_tokens // ratio]
                trace.layer(index)("compressed_kv", entries)
        return trace.values | {"logits": self._target.head(streams, None)}

    def _step(self, batch: ForwardBatch, compressed: Collection[int]) -> StepInputs:
        meta = build_metadata(
            batch, self.layout, ratios=compressed, exact=self._exact_num_tokens, hooks=self._hooks
        )
        return StepInputs(input_ids=batch.input_ids, meta=meta, rotations=self._rotary.for_step(meta))
