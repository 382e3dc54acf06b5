"""Which tensors a DSV4 checkpoint holds: official name, shape, how tensor parallelism cuts it, and its precision."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from dsv4_engine.config import CSA, SLIDING, ModelConfig

HC_MIX_KINDS = 3
"""A hyper-connection mixes into the layer, out of it, and between the streams; each kind has a scale."""


class Split(Enum):
    """How the ranks of a tensor-parallel group share one tensor."""

    REPLICATED = "replicated"
    ROWS = "rows"
    COLUMNS = "columns"
    VOCABULARY = "vocabulary"  # rows, padded with zeros to a multiple of the group's size
    # Dealt out by expert id in contiguous blocks, and cut along the hidden size where several ranks share a block.
    EXPERT_ROWS = "expert rows"
    EXPERT_COLUMNS = "expert columns"


@dataclass(frozen=True, kw_only=True)
class TensorSpec:
    """One tensor's unquantised shape. `fp32` tensors stay in fp32 whatever the model's dtype; `integer` ones are int64.

    `expert` is the expert's id where `split` is one of the experts'. `quantised` tensors may be stored as fp8 or
    mxfp4 with a scale.
    """

    shape: tuple[int, ...]
    split: Split = Split.REPLICATED
    fp32: bool = False
    integer: bool = False
    quantised: bool = False
    expert: int | None = None


def tensor_specs(config: ModelConfig) -> dict[str, TensorSpec]:
    """Every tensor that a checkpoint of this config must hold, by official name, scales aside."""
    c = config
    vocabulary = TensorSpec(shape=(c.vocab_size, c.hidden_size), split=Split.VOCABULARY)
    specs = {"embed.weight": vocabulary, "head.weight": vocabulary, "norm.weight": _vector(c.hidden_size)}
    specs |= _hc_head(c, "")
    for layer in range(c.num_hidden_layers):
        specs |= _block(c, f"layers.{layer}.", ratio=c.compress_ratios[layer], hashed=c.is_hash_layer(layer))
    for layer in range(c.num_nextn_predict_layers):
        prefix = f"mtp.{layer}."
        specs |= _block(c, prefix, ratio=SLIDING, hashed=False) | _hc_head(c, prefix)
        specs |= {f"{prefix}{name}.weight": _vector(c.hidden_size) for name in ("enorm", "hnorm", "norm")}
        projection = TensorSpec(shape=(c.hidden_size, c.hidden_size), quantised=True)
        specs |= {f"{prefix}{name}.weight": projection for name in ("e_proj", "h_proj")}
    return specs


def _vector(size: int) -> TensorSpec:
    return TensorSpec(shape=(size,))


def _fp32(*shape: int, split: Split = Split.REPLICATED) -> TensorSpec:
    return TensorSpec(shape=shape, fp32=True, split=split)


def _hc_head(c: ModelConfig, prefix: str) -> dict[str, TensorSpec]:
    return {
        f"{prefix}hc_head_fn": _fp32(c.hc_mult, c.hc_mult * c.hidden_size),
        f"{prefix}hc_head_base": _fp32(c.hc_mult),
        f"{prefix}hc_head_scale": _fp32(1),
    }


def _block(c: ModelConfig, prefix: str, *, ratio: int, hashed: bool) -> dict[str, TensorSpec]:
    specs = {f"{prefix}{name}.weight": _vector(c.hidden_size) for name in ("attn_norm", "ffn_norm")}
    mixes = (2 + c.hc_mult) * c.hc_mult
    for half in ("attn", "ffn"):
        specs[f"{prefix}hc_{half}_fn"] = _fp32(mixes, c.hc_mult * c.hidden_size)
        specs[f"{prefix}hc_{half}_base"] = _fp32(mixes)
        specs[f"{prefix}hc_{half}_scale"] = _fp32(HC_MIX_KINDS)
    return specs | _attention(c, f"{prefix}attn.", ratio) | _moe(c, f"{prefix}ffn.", hashed)


def _attention(c: ModelConfig, prefix: str, ratio: int) -> dict[str, TensorSpec]:
    group_width = c.num_attention_heads // c.o_groups * c.head_dim
    heads_width, output_rank = c.num_attention_heads * c.head_dim, c.o_groups * c.o_lora_rank
    specs = {
        "wq_a.weight": TensorSpec(shape=(c.q_lora_rank, c.hidden_size), quantised=True),
        "q_norm.weight": _vector(c.q_lora_rank),
        "wq_b.weight": TensorSpec(shape=(heads_width, c.q_lora_rank), split=Split.ROWS, quantised=True),
        "wkv.weight": TensorSpec(shape=(c.head_dim, c.hidden_size), quantised=True),
        "kv_norm.weight": _vector(c.head_dim),
        "attn_sink": _fp32(c.num_attention_heads, split=Split.ROWS),
        "wo_a.weight": TensorSpec(shape=(output_rank, group_width), split=Split.ROWS, quantised=True),
        "wo_b.weight": TensorSpec(shape=(c.hidden_size, output_rank), split=Split.COLUMNS, quantised=True),
    }
    if ratio != SLIDING:
        specs |= _compressor(c, "compressor.", ratio, c.head_dim)
    if ratio == CSA:
        query = TensorSpec(shape=(c.index_n_heads * c.index_head_dim, c.q_lora_rank), split=Split.ROWS, quantised=True)
        specs["indexer.wq_b.weight"] = query
        specs["indexer.weights_proj.weight"] = TensorSpec(shape=(c.index_n_heads, c.hidden_size), split=Split.ROWS)
        specs |= _compressor(c, "indexer.compressor.", ratio, c.index_head_dim)
    return {prefix + name: spec for name, spec in specs.items()}


def _compressor(c: ModelConfig, prefix: str, ratio: int, width: int) -> dict[str, TensorSpec]:
    channels = 2 * width if ratio == CSA else width
    return {
        f"{prefix}ape": _fp32(ratio, channels),
        f"{prefix}wkv.weight": TensorSpec(shape=(channels, c.hidden_size)),
        f"{prefix}wgate.weight": TensorSpec(shape=(channels, c.hidden_size)),
        f"{prefix}norm.weight": _vector(width),
    }


def _moe(c: ModelConfig, prefix: str, hashed: bool) -> dict[str, TensorSpec]:
    specs = {f"{prefix}gate.weight": TensorSpec(shape=(c.n_routed_experts, c.hidden_size))}
    if hashed:
        specs[f"{prefix}gate.tid2eid"] = TensorSpec(shape=(c.vocab_size, c.num_experts_per_tok), integer=True)
    else:
        specs[f"{prefix}gate.bias"] = _fp32(c.n_routed_experts)
    up, down = (c.moe_intermediate_size, c.hidden_size), (c.hidden_size, c.moe_intermediate_size)
    for name, shape in (("w1", up), ("w2", down), ("w3", up)):
        specs[f"{prefix}shared_experts.{name}.weight"] = TensorSpec(shape=shape, quantised=True)
        for expert in range(c.n_routed_experts):
            specs[f"{prefix}experts.{expert}.{name}.weight"] = TensorSpec(
                shape=shape,
                split=Split.EXPERT_COLUMNS if name == "w2" else Split.EXPERT_ROWS,
                quantised=True,
                expert=expert,
            )
    return specs
