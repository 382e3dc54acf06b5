"""A plain decoder-only transformer to compare with: pre-norm, rotary attention over everything before, SwiGLU."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional as F

from dsv4_engine.config import ModelConfig
from dsv4_engine.training import functions
from dsv4_engine.training.compiling import compiled
from dsv4_engine.training.layers import Norm, linear
from dsv4_engine.training.model import rotation_table

_LAYERS, _SIZE, _HEADS, _INNER, _BASE = 6, 256, 8, 800, 10000.0
"""As many parameters as dsv4-nano, 5.4 M, all of them used by every token."""


class PlainTransformer(nn.Module):
    """(B, T) ids -> (B, T, V) float32 logits."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.embed = nn.Embedding(config.vocab_size, _SIZE)
        nn.init.normal_(self.embed.weight, std=0.7)
        self.layers = nn.ModuleList(_Layer(config.rms_norm_eps) for _ in range(_LAYERS))
        self.norm, self.head = Norm(_SIZE, config.rms_norm_eps), linear(_SIZE, config.vocab_size, gain=0.3)
        pairs = _SIZE // _HEADS // 2
        self._frequencies = _BASE ** -(torch.arange(pairs) / pairs)
        self._turns: dict[tuple[int, torch.device], functions.Rotation] = {}

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        key = (input_ids.shape[1], input_ids.device)
        if key not in self._turns:
            self._turns[key] = rotation_table(key[0], self._frequencies, key[1])
        turn = self._turns[key]
        x = self.embed(input_ids)
        for layer in self.layers:
            x = layer(x, turn)
        return self.head(self.norm(x)).float()


class _Layer(nn.Module):
    def __init__(self, eps: float) -> None:
        super().__init__()
        self.attn_norm, self.ffn_norm = Norm(_SIZE, eps), Norm(_SIZE, eps)
        self.qkv, self.out = linear(_SIZE, 3 * _SIZE), linear(_SIZE, _SIZE, gain=0.3)
        self.gate_up, self.down = linear(_SIZE, 2 * _INNER), linear(_INNER, _SIZE, gain=0.3)

    def forward(self, x: torch.Tensor, turn: functions.Rotation) -> torch.Tensor:
        query, key, value = self.qkv(self.attn_norm(x)).unflatten(-1, (3, _HEADS, -1)).unbind(2)
        query, key = compiled(functions.rotate)(query, turn), compiled(functions.rotate)(key, turn)
        query, key, value = (each.transpose(1, 2) for each in (query, key, value))
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        gate, up = self.gate_up(self.ffn_norm(x)).chunk(2, -1)
        return x + self.down(compiled(_swiglu)(gate, up))


def _swiglu(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    return F.silu(gate) * up
