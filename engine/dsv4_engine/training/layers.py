"""Trainable DSV4 layers, named as the official checkpoint names them, so that a state dict is nearly a checkpoint."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F

from dsv4_engine.config import CSA, SLIDING, ModelConfig
from dsv4_engine.model.moe import swiglu
from dsv4_engine.training import functions
from dsv4_engine.training.compiling import compiled
from dsv4_engine.training.functions import Rotation

_STREAM_BIAS = -1.1
"""A sigmoid of about 1/4: a half-block begins by reading the mean of four streams."""
_KEEP_BIAS = 4.0
"""On the diagonal of a stream mix: a stream begins by staying itself."""


class Norm(nn.Module):
    """RMS norm with a plain weight."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self._eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return compiled(functions.norm)(x, self.weight, self._eps)


def linear(inputs: int, outputs: int, gain: float = 1.0) -> nn.Linear:
    """A matrix without bias, entries of deviation gain / sqrt(inputs)."""
    layer = nn.Linear(inputs, outputs, bias=False)
    nn.init.normal_(layer.weight, std=gain / math.sqrt(inputs))
    return layer


class HyperConnection(nn.Module):
    """`hc_attn_*` or `hc_ffn_*` of one half-block."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        hc = config.hc_mult
        self.fn = nn.Parameter(torch.randn((2 + hc) * hc, hc * config.hidden_size) * 0.02)
        keep = _KEEP_BIAS * torch.eye(hc).flatten()
        self.base = nn.Parameter(torch.cat((torch.full((hc,), _STREAM_BIAS), torch.zeros(hc), keep)))
        self.scale = nn.Parameter(torch.full((3,), 0.3))
        self._iterations, self._eps = config.hc_sinkhorn_iters, (config.rms_norm_eps, config.hc_eps)

    def forward(self, streams: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        rms_eps, hc_eps = self._eps
        return compiled(functions.read_streams)(
            streams, self.fn, self.base, self.scale, iterations=self._iterations, rms_eps=rms_eps, hc_eps=hc_eps
        )


class StreamHead(nn.Module):
    """`hc_head_*`: streams (N, hc, D) -> (N, D)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        hc = config.hc_mult
        self.fn = nn.Parameter(torch.randn(hc, hc * config.hidden_size) * 0.02)
        self.base = nn.Parameter(torch.full((hc,), _STREAM_BIAS))
        self.scale = nn.Parameter(torch.full((1,), 0.3))
        self._numbers = {"rms_eps": config.rms_norm_eps, "hc_eps": config.hc_eps}

    def forward(self, streams: torch.Tensor) -> torch.Tensor:
        return compiled(functions.collapse)(streams, self.fn, self.base, self.scale, **self._numbers)


class Compressor(nn.Module):
    """One `compressor.*` of width `dim`."""

    def __init__(self, config: ModelConfig, *, ratio: int, dim: int) -> None:
        super().__init__()
        channels = 2 * dim if ratio == CSA else dim
        self.wkv, self.wgate = linear(config.hidden_size, channels), linear(config.hidden_size, channels)
        self.ape = nn.Parameter(torch.zeros(ratio, channels))
        self.norm = Norm(dim, config.rms_norm_eps)
        self._ratio = ratio

    def forward(self, x: torch.Tensor, turn: Rotation) -> torch.Tensor:
        """x (B, T, D) -> entries (B, T / ratio, dim), each turned to its window's first position."""
        entries = compiled(functions.pooled)(self.wkv(x), self.wgate(x), self.ape, ratio=self._ratio)
        starts = (turn[0][:: self._ratio][: entries.shape[1]], turn[1][:: self._ratio][: entries.shape[1]])
        return compiled(functions.rotate)(self.norm(entries), starts)


class Indexer(nn.Module):
    """`attn.indexer.*`. It learns from its own loss alone: what it reads passes no gradient on."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        heads, dim = config.index_n_heads, config.index_head_dim
        self.wq_b = linear(config.q_lora_rank, heads * dim)
        self.weights_proj = linear(config.hidden_size, heads)
        self.compressor = Compressor(config, ratio=CSA, dim=dim)
        self._heads, self._scale = heads, dim**-0.5 * heads**-0.5

    def forward(self, x: torch.Tensor, q_latent: torch.Tensor, turn: Rotation) -> torch.Tensor:
        """Scores (B, T, E) of all entries, visible or not."""
        x, q_latent = x.detach(), q_latent.detach()
        keys = self.compressor(x, turn)
        query = compiled(functions.rotate)(self.wq_b(q_latent).unflatten(-1, (self._heads, -1)), turn)
        return compiled(functions.index_scores)(query, keys, self.weights_proj(x).float() * self._scale)


@dataclass(frozen=True, kw_only=True)
class AttentionResult:
    """output: (B, T, D). kv: (B, T, d), this layer's keys. index_loss: a scalar in a layer with an indexer, in nats."""

    output: torch.Tensor
    kv: torch.Tensor
    index_loss: torch.Tensor | None


class Attention(nn.Module):
    """`attn.*` of one layer of any of the three kinds."""

    def __init__(self, config: ModelConfig, *, ratio: int) -> None:
        super().__init__()
        c = config
        width = c.num_attention_heads * c.head_dim
        self.wq_a, self.q_norm = linear(c.hidden_size, c.q_lora_rank), Norm(c.q_lora_rank, c.rms_norm_eps)
        self.wq_b = linear(c.q_lora_rank, width)
        self.wkv, self.kv_norm = linear(c.hidden_size, c.head_dim), Norm(c.head_dim, c.rms_norm_eps)
        self.attn_sink = nn.Parameter(torch.zeros(c.num_attention_heads))
        self.wo_a = linear(width // c.o_groups, c.o_groups * c.o_lora_rank)
        self.wo_b = linear(c.o_groups * c.o_lora_rank, c.hidden_size, gain=0.3)
        if ratio != SLIDING:
            self.compressor = Compressor(c, ratio=ratio, dim=c.head_dim)
        if ratio == CSA:
            self.indexer = Indexer(c)
        self._ratio, self._heads, self._groups = ratio, c.num_attention_heads, c.o_groups
        self._eps, self._topk = c.rms_norm_eps, c.index_topk
        self._window, self._scale = c.sliding_window, c.head_dim**-0.5

    def forward(
        self, x: torch.Tensor, turn: Rotation, *, sparse: bool = True, chain: Sequence[torch.Tensor] = ()
    ) -> AttentionResult:
        """x (B, T, D), normed. sparse: keep to the indexer's choice in ratio-4 layers, else attend all visible entries.

        chain: keys of the passes before this one, the first pass first, when an MTP layer follows its own drafts.
        """
        q_latent = self.q_norm(self.wq_a(x))
        query = compiled(functions.norm)(self.wq_b(q_latent).unflatten(-1, (self._heads, -1)), None, self._eps)
        query = compiled(functions.rotate)(query, turn)
        kv = compiled(functions.rotate)(self.kv_norm(self.wkv(x)), turn)
        entries = allowed = scores = None
        if self._ratio != SLIDING:
            entries = self.compressor(x, turn)
            allowed = _visible(x.shape[1], entries.shape[1], self._ratio, x.device)
        if self._ratio == CSA:
            assert allowed is not None
            scores = self.indexer(x, q_latent, turn)
            if sparse:
                allowed = _chosen(scores, allowed, self._topk)
        own = [_later(keys, back) for back, keys in enumerate((kv, *reversed(chain[1:])))] if chain else []
        source = chain[0] if chain else kv
        mixed, far = functions.attend(
            query, source, self.attn_sink, entries, allowed, own, window=self._window, scale=self._scale
        )
        index_loss = None
        if scores is not None:
            assert far is not None and allowed is not None
            index_loss = compiled(functions.restricted_divergence)(far, scores, allowed)
        output = compiled(functions.rotate)(mixed, turn, inverse=True)
        return AttentionResult(output=self._project(output), kv=kv, index_loss=index_loss)

    def _project(self, mixed: torch.Tensor) -> torch.Tensor:
        grouped = mixed.flatten(2).unflatten(2, (self._groups, -1))
        maps = self.wo_a.weight.unflatten(0, (self._groups, -1)).to(grouped.dtype)
        low_rank = torch.einsum("btgi,goi->btgo", grouped, maps)
        return self.wo_b(low_rank.flatten(2))


def _visible(rows: int, entries: int, ratio: int, device: torch.device) -> torch.Tensor:
    """(1, T, E): an entry is there from the token that completes its window."""
    completed = (torch.arange(rows, device=device) + 1) // ratio
    return (torch.arange(entries, device=device) < completed[:, None])[None]


def _chosen(scores: torch.Tensor, visible: torch.Tensor, topk: int) -> torch.Tensor:
    if scores.shape[-1] <= topk:
        return visible
    masked = scores.detach().masked_fill(~visible, float("-inf"))
    best = masked.topk(topk, -1).indices
    return torch.zeros_like(masked, dtype=torch.bool).scatter_(-1, best, True) & visible


def _later(keys: torch.Tensor, rows: int) -> torch.Tensor:
    """Row t holds what row t - rows held; the first ones are zero."""
    if rows == 0:
        return keys
    return torch.cat((torch.zeros_like(keys[:, :rows]), keys[:, :-rows]), 1)


class Gate(nn.Module):
    """`ffn.gate.*`: a learned router with a bias that only steers the choice, or a table by token id."""

    def __init__(self, config: ModelConfig, *, table: torch.Tensor | None) -> None:
        super().__init__()
        experts = config.n_routed_experts
        self.weight = nn.Parameter(torch.randn(experts, config.hidden_size) / math.sqrt(config.hidden_size))
        if table is None:
            self.register_buffer("bias", torch.zeros(experts))
        else:
            self.register_buffer("tid2eid", table)
        self._topk, self._scaling = config.num_experts_per_tok, config.routed_scaling_factor

    def forward(self, x: torch.Tensor, input_ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """x (N, D), input_ids (N,) -> dense weights (N, experts), and each expert's load (experts,) where it can be
        steered: 1 for its fair share of the rows."""
        with torch.autocast(x.device.type, enabled=False):
            scores = F.softplus(F.linear(x.float(), self.weight)).sqrt()
        if hasattr(self, "tid2eid"):
            return functions.routed_weights(scores, self.tid2eid[input_ids], scaling=self._scaling), None
        chosen = (scores.detach() + self.bias).topk(self._topk, -1).indices
        experts = scores.shape[1]
        taken = torch.zeros_like(scores).scatter_(1, chosen, 1.0)
        load = taken.mean(0) * (experts / self._topk)
        return functions.routed_weights(scores, chosen, scaling=self._scaling), load


class Expert(nn.Module):
    """A shared expert `w1`, `w2`, `w3`."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        hidden, inner = config.hidden_size, config.moe_intermediate_size
        self.w1, self.w2, self.w3 = linear(hidden, inner), linear(inner, hidden, gain=0.3), linear(hidden, inner)
        self._limit = config.swiglu_limit

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        gate, up = self.w1(x), self.w3(x)
        return self.w2(compiled(swiglu)(gate, up, self._limit).to(gate.dtype))


class Experts(nn.Module):
    """`ffn.*`. The routed experts' matrices are stacked: w1 and w3 (experts, I, D), w2 (experts, D, I)."""

    def __init__(self, config: ModelConfig, *, table: torch.Tensor | None) -> None:
        super().__init__()
        experts, hidden, inner = config.n_routed_experts, config.hidden_size, config.moe_intermediate_size
        self.gate = Gate(config, table=table)
        self.w1 = nn.Parameter(torch.randn(experts, inner, hidden) / math.sqrt(hidden))
        self.w3 = nn.Parameter(torch.randn(experts, inner, hidden) / math.sqrt(hidden))
        self.w2 = nn.Parameter(torch.randn(experts, hidden, inner) * (0.3 / math.sqrt(inner)))
        self.shared_experts = Expert(config)
        self._limit = config.swiglu_limit

    def forward(self, x: torch.Tensor, input_ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor | None]:
        """x (N, D) -> (N, D), and the load as the gate tells it."""
        share, load = self.gate(x, input_ids)
        gate_up = torch.stack((self.w1, self.w3), 1)
        routed = compiled(functions.mixture)(x, share, gate_up, self.w2, limit=self._limit)
        return routed + self.shared_experts(x), load
