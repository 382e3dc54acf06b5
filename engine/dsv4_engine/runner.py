"""Runs forward passes of the target model and of its MTP layer on caches, for any mix of requests."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch

from dsv4_engine.attention.backends.base import load_backend
from dsv4_engine.attention.compress_plan import CompressPlanner, StagedPlan
from dsv4_engine.attention.core import compressed_rows
from dsv4_engine.attention.metadata import MetadataContext, build_metadata
from dsv4_engine.batch import ForwardBatch
from dsv4_engine.cache.budget import CachePlan, cache_plan
from dsv4_engine.cache.layout import CacheLayout, CacheShape
from dsv4_engine.cache.pools import allocate_layers
from dsv4_engine.cache.request_table import RequestTable
from dsv4_engine.cache.staging import NO_FAULTS, Faults, StagingRing
from dsv4_engine.cache.tails import load_to_ring, save_from_ring
from dsv4_engine.config import CSA, SLIDING, ModelConfig
from dsv4_engine.errors import EngineError
from dsv4_engine.hooks import StepHooks
from dsv4_engine.model.moe import host_reads
from dsv4_engine.model.mtp import MtpModel
from dsv4_engine.model.rope import RotaryEmbedding
from dsv4_engine.model.step import StepInputs
from dsv4_engine.model.target import TargetModel
from dsv4_engine.model.trace import TraceRecorder
from dsv4_engine.model.vocabulary import Vocabulary
from dsv4_engine.model.weights import WeightReader
from dsv4_engine.parallel.groups import ParallelGroups
from dsv4_engine.plan import TableWrite, TailLoad

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
    exact_num_tokens picks the form of the metadata expansion, see `attach_prefill_meta`; plan_on: "device" or "host",
    where compress plans are made; results are the same. own_pages: give every slot pages of its own at once; a
    scheduler that fills the request table itself says False.
    A slot or page needs no clearing between requests: no read goes beyond what its own request has written.
    """

    def __init__(
        self,
        config: ModelConfig,
        weights: Mapping[str, torch.Tensor] | Iterable[tuple[str, torch.Tensor]],
        *,
        groups: ParallelGroups,
        device: torch.device,
        dtype: torch.dtype,
        cache: CacheShape,
        exact_num_tokens: bool,
        hooks: StepHooks,
        backend: str = "reference",
        plan_on: str = "device",
        faults: Faults = NO_FAULTS,
        own_pages: bool = True,
    ) -> None:
        reader = WeightReader(dict(weights), device=device, dtype=dtype)
        self.layout = CacheLayout.plan(config, cache)
        self._backend = load_backend(backend)
        self._staging = StagingRing(device, faults=faults)
        self._planner = CompressPlanner(plan_on, self._staging)
        self._rotary = RotaryEmbedding(config, device)
        vocabulary = Vocabulary(config, reader, groups.tp)
        self._reads_on_host = host_reads(config, groups.experts) or groups.reads_on_host(device)
        self._target = TargetModel(config, reader, vocabulary, groups)
        self._mtp = (
            MtpModel(config, reader.below("mtp.0"), vocabulary, groups)
            if config.has_mtp and reader.has("mtp.0.e_proj.weight")
            else None
        )
        self._ratios = config.compress_ratios[: config.num_hidden_layers]
        ratios = (*self._ratios, *((SLIDING,) if self._mtp else ()))
        self.cache_plan: CachePlan = cache_plan(config, self.layout, ratios, dtype=dtype)
        self.layer_pools = allocate_layers(config, self.layout, ratios, device=device, dtype=dtype)
        self._pools = self.layer_pools[: config.num_hidden_layers]
        self._mtp_pool = self.layer_pools[-1] if self._mtp else None
        self.table = RequestTable(self.layout, device=device, staging=self._staging, faults=faults)
        if own_pages:
            self.table.identity()
        self._context = MetadataContext(
            layout=self.layout,
            table=self.table,
            planner=self._planner,
            staging=self._staging,
            index_topk=config.index_topk,
            exact=exact_num_tokens,
            hooks=hooks,
            faults=faults,
        )

    @property
    def has_mtp(self) -> bool:
        return self._mtp is not None

    @property
    def reads_on_host(self) -> str | None:
        """Why a forward makes the host wait, or runs on it, so that no graph can hold it; None if not."""
        return self._reads_on_host

    @property
    def backend(self) -> str:
        return self._backend.name

    @property
    def plan_fallbacks(self) -> Counter[str]:
        """Compress plans that were wanted from the host and made on the device, by reason."""
        return self._planner.fallbacks

    @property
    def staged_plans(self) -> Sequence[StagedPlan]:
        """The last uploaded plans with their checksums, where staging is faulty on purpose; else empty."""
        return self._planner.staged

    @torch.no_grad()
    def prepare(self, batch: ForwardBatch, *, compress: bool) -> StepInputs:
        """All that a pass needs beside weights and pools: metadata, rotations, the backend's plan.

        compress: True for the target model, False for the MTP layer. Only here may a step's host values be looked at;
        what follows is a function of tensors alone. Steps of equal batch shape and max_seq_len are alike in every
        shape, so that one can be copied into another (see `attention.tree`).
        """
        meta = build_metadata(batch, self._context, compress=compress)
        return StepInputs(
            input_ids=batch.input_ids,
            meta=meta,
            rotations=self._rotary.for_step(meta),
            backend=self._backend,
            plan=self._backend.plan(meta),
            peer_rows=batch.peer_rows,
        )

    @torch.no_grad()
    def target(
        self, step: StepInputs, logits_rows: torch.Tensor | None, trace: TraceRecorder | None = None
    ) -> TargetOutput:
        """One pass of the main model over prepared inputs; `logits_rows` (R,) int64 of rows that get logits, None: all.

        Reads nothing on the host, so it can be captured in a graph.
        """
        streams = self._target(step, self._pools, trace)
        return TargetOutput(self._target.head(streams, logits_rows), streams)

    @torch.no_grad()
    def mtp(self, step: StepInputs, streams: torch.Tensor, logits_rows: torch.Tensor | None) -> MtpOutput:
        """One pass of the MTP layer likewise: row p takes streams (T, hc, D) of p and, as input id, token p + 1."""
        assert self._mtp is not None and self._mtp_pool is not None, "the checkpoint has no MTP layer"
        own = self._mtp(step, streams, self._mtp_pool)
        return MtpOutput(self._mtp.head(own, logits_rows), own)

    def forward_target(self, batch: ForwardBatch, *, logits_rows: torch.Tensor | None = None) -> TargetOutput:
        """`prepare` and `target` in one."""
        return self.target(self.prepare(batch, compress=True), logits_rows)

    def forward_mtp(
        self, batch: ForwardBatch, streams: torch.Tensor, *, logits_rows: torch.Tensor | None = None
    ) -> MtpOutput:
        """`prepare` and `mtp` in one."""
        assert self._mtp is not None, "the checkpoint has no MTP layer"
        return self.mtp(self.prepare(batch, compress=False), streams, logits_rows)

    def apply(self, writes: Sequence[TableWrite]) -> None:
        """Enter pages into the request table, before the steps that follow and after those launched."""
        self.table.apply(writes)

    @torch.no_grad()
    def load_tails(self, loads: Sequence[TailLoad]) -> None:
        """Put snapshots into slots, which then continue from `boundary` as if they had computed the prefix.

        Its pages must be in the request table. EngineError where no tails are kept.
        """
        if not loads:
            return
        self._require_tails()
        values = ([load.slot for load in loads], [load.boundary for load in loads], [load.tail for load in loads])
        slot, boundary, tail = self._staging.upload(values).tensor()
        for rings, snapshots, ring in self._tail_places():
            load_to_ring(rings, snapshots, slot, boundary, tail, ring)

    @torch.no_grad()
    def save_tails(
        self,
        slots: torch.Tensor,
        boundaries: torch.Tensor,
        tails: torch.Tensor,
        starts: torch.Tensor,
        committed_ends: torch.Tensor,
    ) -> None:
        """After a decode step: keep prefixes that ended within what it committed. All (B,) int64 on the device.

        A request whose step took its committed tokens from `start` to `committed_end` saves row `tail` if start <
        boundary <= committed_end, and changes nothing otherwise. The rings still hold all `window` rows before the
        boundary: a step of n rows overwrites positions below start - window + 1 only.
        """
        self._require_tails()
        tail = torch.where((starts < boundaries) & (boundaries <= committed_ends), tails, 0)
        for rings, snapshots, ring in self._tail_places():
            save_from_ring(snapshots, rings, slots, boundaries, tail, ring)

    def _tail_places(self) -> Iterable[tuple[torch.Tensor, torch.Tensor, int]]:
        """Each ring that a prefix hands on, its snapshots, and its length."""
        for pool in self.layer_pools:
            tail = pool.tail
            assert tail is not None
            yield pool.unified, tail.window, self.layout.window_ring
            for compressor, state in ((pool.attention, tail.attention_state), (pool.indexer, tail.indexer_state)):
                if compressor is not None and state is not None:
                    yield compressor.state, state, self.layout.state_ring[CSA]

    def _require_tails(self) -> None:
        if not self.layout.num_tails:
            raise EngineError("no tails are kept", hint="set num_tails of the cache shape")

    @torch.no_grad()
    def trace_target(self, batch: ForwardBatch) -> dict[str, torch.Tensor]:
        """A pass of one request from its first token, with each layer's quantities as `L{i}.{name}` and the logits.

        Names: {attn,ffn}_hc.{collapsed,post,comb}, attn_out, moe_out, router_{indices,weights}, streams_out,
        and where they apply compressed_kv (entries, head_dim) and index_topk (T, K).
        """
        assert batch.num_requests == 1 and batch.seq_lens_host == batch.extend_lens_host, "trace one whole prompt"
        trace = TraceRecorder()
        step = self.prepare(batch, compress=True)
        logits = self.target(step, None, trace).logits
        for index, (ratio, pool) in enumerate(zip(self._ratios, self._pools, strict=True)):
            if pool.attention is not None:
                assert step.meta.core.page_table is not None
                rows = compressed_rows(
                    step.meta.core.page_table[:1], batch.num_tokens // ratio, self.layout.rows_per_page(ratio)
                )
                trace.layer(index)("compressed_kv", pool.attention.keys[rows[0]])
        return trace.values | {"logits": logits}
