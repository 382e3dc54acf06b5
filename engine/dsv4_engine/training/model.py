"""The whole trainable model: main layers, head, and the MTP layer with its chain of drafts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from dsv4_engine.config import SLIDING, ModelConfig
from dsv4_engine.model.rope import inverse_frequencies
from dsv4_engine.training import functions
from dsv4_engine.training.compiling import compiled
from dsv4_engine.training.functions import Rotation
from dsv4_engine.training.layers import Attention, Experts, Gate, HyperConnection, Norm, StreamHead, linear

_EMBED_STD = 0.7


@dataclass(frozen=True, kw_only=True)
class BlockResult:
    """streams: (B, T, hc, D). kv, index_loss: as in AttentionResult. load: as `Gate` tells it."""

    streams: torch.Tensor
    kv: torch.Tensor
    index_loss: torch.Tensor | None
    load: torch.Tensor | None


class Block(nn.Module):
    """`layers.N`, or the block in `mtp.0`."""

    def __init__(self, config: ModelConfig, *, layer_id: int, table: torch.Tensor | None) -> None:
        super().__init__()
        self.ratio = config.compress_ratios[layer_id]
        self.hc_attn, self.hc_ffn = HyperConnection(config), HyperConnection(config)
        self.attn_norm = Norm(config.hidden_size, config.rms_norm_eps)
        self.ffn_norm = Norm(config.hidden_size, config.rms_norm_eps)
        self.attn = Attention(config, ratio=self.ratio)
        self.ffn = Experts(config, table=table if config.is_hash_layer(layer_id) else None)

    def forward(
        self,
        streams: torch.Tensor,
        input_ids: torch.Tensor,
        turns: Mapping[int, Rotation],
        *,
        sparse: bool = True,
        chain: Sequence[torch.Tensor] = (),
    ) -> BlockResult:
        """streams (B, T, hc, D), input_ids (B, T)."""
        shape = streams.shape
        flat = streams.flatten(0, 1)
        x, post, comb = self.hc_attn(flat)
        x = self.attn_norm(x).to(streams.dtype).unflatten(0, shape[:2])
        attention = self.attn(x, turns[self.ratio], sparse=sparse, chain=chain)
        flat = compiled(functions.write_streams)(attention.output.flatten(0, 1), flat, post, comb)
        x, post, comb = self.hc_ffn(flat)
        output, load = self.ffn(self.ffn_norm(x).to(streams.dtype), input_ids.flatten())
        flat = compiled(functions.write_streams)(output, flat, post, comb)
        return BlockResult(
            streams=flat.unflatten(0, shape[:2]), kv=attention.kv, index_loss=attention.index_loss, load=load
        )


class MtpLayer(Block):
    """`mtp.0`: a block without compression behind the projections of the next token and of the streams."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config, layer_id=config.mtp_layer_id, table=None)
        size, eps = config.hidden_size, config.rms_norm_eps
        self.e_proj, self.h_proj = linear(size, size), linear(size, size)
        self.enorm, self.hnorm, self.norm = Norm(size, eps), Norm(size, eps), Norm(size, eps)
        self.hc_head = StreamHead(config)

    def mix(self, embedded: torch.Tensor, streams: torch.Tensor) -> torch.Tensor:
        """Row p: the embedding (B, T, D) of the token after p, and the streams (B, T, hc, D) at p."""
        mixed = self.e_proj(self.enorm(embedded))[:, :, None] + self.h_proj(self.hnorm(streams))
        return mixed.to(streams.dtype)


@dataclass(frozen=True, kw_only=True)
class TargetResult:
    """streams: (B, T, hc, D) after the last layer. logits: (B, T, V) float32. index_loss: the mean over the layers with
    an indexer. loads: one (experts,) a layer with a learned router, in order."""

    streams: torch.Tensor
    logits: torch.Tensor
    index_loss: torch.Tensor
    loads: list[torch.Tensor]


@dataclass(frozen=True, kw_only=True)
class DraftResult:
    """logits: one (B, T, V) float32 a draft; row p of draft k sees the tokens up to p + 1, and for its streams the pass
    before it from row p - 1 on. loads: as in TargetResult."""

    logits: list[torch.Tensor]
    loads: list[torch.Tensor]


class TrainableModel(nn.Module):
    """Names of parameters are the official ones, but for experts (stacked) and hyper-connections (`hc_attn.fn`)."""

    def __init__(self, config: ModelConfig, *, table: torch.Tensor | None) -> None:
        """table: (V, experts a token) int64, the experts of each token id in hash layers."""
        super().__init__()
        self.config = config
        self.embed = nn.Embedding(config.vocab_size, config.hidden_size)
        nn.init.normal_(self.embed.weight, std=_EMBED_STD)
        self.layers = nn.ModuleList(
            Block(config, layer_id=layer, table=table) for layer in range(config.num_hidden_layers)
        )
        self.hc_head, self.norm = StreamHead(config), Norm(config.hidden_size, config.rms_norm_eps)
        self.head = linear(config.hidden_size, config.vocab_size, gain=0.3)
        self.mtp = nn.ModuleList(MtpLayer(config) for _ in range(config.num_nextn_predict_layers))
        self._turns: dict[tuple[int, torch.device], dict[int, Rotation]] = {}

    def forward(self, input_ids: torch.Tensor, *, sparse: bool = True) -> TargetResult:
        """input_ids (B, T) int64; T is a multiple of the window and of 128."""
        embedded = self.embed(input_ids)
        streams = embedded[:, :, None].expand(-1, -1, self.config.hc_mult, -1).contiguous()
        turns = self.turns(input_ids.shape[1], input_ids.device)
        index_losses, loads = [], []
        for layer in self.layers:
            result = layer(streams, input_ids, turns, sparse=sparse)
            streams = result.streams
            index_losses += [result.index_loss] if result.index_loss is not None else []
            loads += [result.load] if result.load is not None else []
        index_loss = torch.stack(index_losses).mean() if index_losses else streams.new_zeros(())
        logits = self._logits(streams, self.hc_head, self.norm)
        return TargetResult(streams=streams, logits=logits, index_loss=index_loss, loads=loads)

    def drafts(self, streams: torch.Tensor, next_ids: torch.Tensor, *, count: int) -> DraftResult:
        """Logits of a chain of drafts that were all right: next_ids (B, T) holds the token after each row."""
        layer = self.mtp[0]
        assert isinstance(layer, MtpLayer)
        embedded = self.embed(next_ids)
        turns = self.turns(next_ids.shape[1], next_ids.device)
        chain: list[torch.Tensor] = []
        logits, loads = [], []
        for _ in range(count):
            result = layer(layer.mix(embedded, streams), next_ids, turns, chain=chain)
            logits.append(self._logits(result.streams, layer.hc_head, layer.norm))
            loads += [result.load] if result.load is not None and not chain else []
            chain.append(result.kv)
            streams = torch.cat((torch.zeros_like(result.streams[:, :1]), result.streams[:, :-1]), 1)
        return DraftResult(logits=logits, loads=loads)

    def steered_gates(self) -> list[Gate]:
        """The learned routers, in the order of the loads that a forward and its drafts tell."""
        return [module for module in self.modules() if isinstance(module, Gate) and hasattr(module, "bias")]

    def turns(self, length: int, device: torch.device) -> dict[int, Rotation]:
        """By compression ratio, the rotation at each position."""
        key = (length, device)
        if key not in self._turns:
            c = self.config
            plain = rotation_table(length, inverse_frequencies(c.qk_rope_head_dim, c.rope_theta, None), device)
            stretched = inverse_frequencies(c.qk_rope_head_dim, c.compress_rope_theta, c.rope_scaling)
            far = rotation_table(length, stretched, device)
            self._turns[key] = {ratio: plain if ratio == SLIDING else far for ratio in set(c.compress_ratios)}
        return self._turns[key]

    def _logits(self, streams: torch.Tensor, head: StreamHead, norm: Norm) -> torch.Tensor:
        hidden = norm(head(streams.flatten(0, 1))).unflatten(0, streams.shape[:2])
        return self.head(hidden).float()


def rotation_table(length: int, frequencies: torch.Tensor, device: torch.device) -> Rotation:
    """The rotation at positions 0 to length - 1 by frequencies (n,) in radians a position."""
    angles = torch.arange(length)[:, None] * frequencies
    # dsv4prof: allow[DSV108] once a length
    return angles.cos().to(device), angles.sin().to(device)
