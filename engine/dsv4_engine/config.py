"""A DeepSeek-V4 model's shape, read from the `config.json` of its checkpoint and checked once.

Every other module takes its numbers from here; only the compression ratios 4 and 128 are literal in the architecture
(DeepSeek-V4 technical report, arXiv 2606.19348).
"""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dsv4_engine.errors import EngineError
from dsv4_engine.json_object import read_json_object

SLIDING, CSA, HCA = 0, 4, 128
"""Compression ratios of the three attention kinds: window only, compressed sparse, heavily compressed."""

_MODEL_TYPE = "deepseek_v4"
_ARCHITECTURE = "DeepseekV4ForCausalLM"
_NOT_DSV4_HINT = f"the engine serves models of model_type {_MODEL_TYPE!r} or architecture {_ARCHITECTURE!r}"
_COMPARE_HINT = "compare the file with the published DeepSeek-V4 config"
_MISSING = object()
_LARGEST_INTEGER = 2**31 - 1
_LARGEST = sys.float_info.max


@dataclass(frozen=True, kw_only=True)
class YarnScaling:
    """YaRN parameters of the compressed layers' rotary embedding; the base is `ModelConfig.compress_rope_theta`."""

    factor: float
    original_max_position_embeddings: int
    beta_fast: float = 32.0
    beta_slow: float = 1.0


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """All numbers of one model, under the names of its `config.json`.

    `compress_ratios` has one entry (0, 4 or 128) for each main layer and, last, one for each MTP layer.
    `swiglu_limit` is infinite where the config sets none. `weight_block_size` is the (rows, columns) of an fp8 scale.
    """

    vocab_size: int
    hidden_size: int
    num_hidden_layers: int
    num_nextn_predict_layers: int
    num_attention_heads: int
    head_dim: int
    qk_rope_head_dim: int
    q_lora_rank: int
    o_groups: int
    o_lora_rank: int
    n_routed_experts: int
    num_experts_per_tok: int
    moe_intermediate_size: int
    routed_scaling_factor: float
    swiglu_limit: float
    num_hash_layers: int
    index_n_heads: int
    index_head_dim: int
    index_topk: int
    sliding_window: int
    compress_ratios: tuple[int, ...]
    rope_theta: float
    compress_rope_theta: float
    rope_scaling: YarnScaling | None
    max_position_embeddings: int
    rms_norm_eps: float
    hc_mult: int
    hc_sinkhorn_iters: int
    hc_eps: float
    bos_token_id: int
    eos_token_ids: tuple[int, ...]
    weight_block_size: tuple[int, int]

    @property
    def has_mtp(self) -> bool:
        return self.num_nextn_predict_layers > 0

    @property
    def mtp_layer_id(self) -> int:
        """The id under which the MTP block looks up its ratio and router kind: the one after the last main layer."""
        return self.num_hidden_layers

    def is_hash_layer(self, layer: int) -> bool:
        """Whether this layer's experts follow from the token id instead of a learned router."""
        return layer < self.num_hash_layers

    @classmethod
    def from_folder(cls, folder: Path) -> ModelConfig:
        """Read `folder/config.json`; raises EngineError where it is absent, is no JSON object or is not DSV4."""
        path = folder / "config.json"
        if not path.exists():
            raise EngineError(
                f"{folder} has no config.json", hint="give the folder of a Hugging Face checkpoint, or dsv4-nano"
            )
        values = read_json_object(path, hint="download the checkpoint's config again")
        return cls.from_dict(values, source=str(path))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any], *, source: str = "config") -> ModelConfig:
        """Check and convert the content of a `config.json`; `source` names it in errors (EngineError)."""
        _require_dsv4(values, source)
        read = _Reader(values, source)
        layers, nextn = read.integer("num_hidden_layers"), read.integer("num_nextn_predict_layers", 0, minimum=0)
        config = cls(
            vocab_size=read.integer("vocab_size"),
            hidden_size=read.integer("hidden_size"),
            num_hidden_layers=layers,
            num_nextn_predict_layers=nextn,
            num_attention_heads=read.integer("num_attention_heads"),
            head_dim=read.integer("head_dim"),
            qk_rope_head_dim=read.integer("qk_rope_head_dim"),
            q_lora_rank=read.integer("q_lora_rank"),
            o_groups=read.integer("o_groups"),
            o_lora_rank=read.integer("o_lora_rank"),
            n_routed_experts=read.integer("n_routed_experts"),
            num_experts_per_tok=read.integer("num_experts_per_tok"),
            moe_intermediate_size=read.integer("moe_intermediate_size"),
            routed_scaling_factor=read.number("routed_scaling_factor", 1.0),
            swiglu_limit=read.limit("swiglu_limit"),
            num_hash_layers=read.integer("num_hash_layers", 0, minimum=0),
            index_n_heads=read.integer("index_n_heads"),
            index_head_dim=read.integer("index_head_dim"),
            index_topk=read.integer("index_topk"),
            sliding_window=read.integer("sliding_window"),
            compress_ratios=read.ratios(layers, nextn),
            rope_theta=read.number("rope_theta", 10000.0, above=1),
            compress_rope_theta=read.number("compress_rope_theta", 160000.0, above=1),
            rope_scaling=read.yarn(),
            max_position_embeddings=read.integer("max_position_embeddings"),
            rms_norm_eps=read.number("rms_norm_eps", 1e-6),
            hc_mult=read.integer("hc_mult"),
            hc_sinkhorn_iters=read.integer("hc_sinkhorn_iters", 20),
            hc_eps=read.number("hc_eps", 1e-6),
            bos_token_id=read.integer("bos_token_id", 0, minimum=0),
            eos_token_ids=read.token_ids("eos_token_id", (1,)),
            weight_block_size=read.block_size(),
        )
        read.require_supported()
        _require_consistent(config, source)
        return config


def _require_dsv4(values: Mapping[str, Any], source: str) -> None:
    model_type, architectures = values.get("model_type"), values.get("architectures")
    architectures = architectures if isinstance(architectures, list) else []
    if model_type == _MODEL_TYPE or (model_type is None and _ARCHITECTURE in architectures):
        return
    named = model_type or ", ".join(map(str, architectures)) or "no model type"
    raise EngineError(f"{source} is not a DeepSeek-V4 config: it says {named}", hint=_NOT_DSV4_HINT)


def _require_consistent(config: ModelConfig, source: str) -> None:
    c = config
    rules = (
        (c.num_nextn_predict_layers <= 1, "num_nextn_predict_layers is over 1"),
        (c.qk_rope_head_dim % 2 == 0, "qk_rope_head_dim is odd"),
        (c.qk_rope_head_dim <= c.head_dim, "qk_rope_head_dim is larger than head_dim"),
        (
            CSA not in c.compress_ratios or c.qk_rope_head_dim <= c.index_head_dim,
            "qk_rope_head_dim is larger than index_head_dim",
        ),
        (c.num_attention_heads % c.o_groups == 0, "num_attention_heads is no multiple of o_groups"),
        (c.num_experts_per_tok <= c.n_routed_experts, "num_experts_per_tok is larger than n_routed_experts"),
        (c.num_hash_layers <= c.num_hidden_layers, "num_hash_layers is larger than num_hidden_layers"),
        (not any(c.compress_ratios[c.num_hidden_layers :]), "the MTP layer's compress_ratio is not 0"),
        (c.bos_token_id < c.vocab_size, "bos_token_id lies outside the vocabulary"),
        (all(token < c.vocab_size for token in c.eos_token_ids), "eos_token_id lies outside the vocabulary"),
    )
    for holds, complaint in rules:
        if not holds:
            raise EngineError(f"{source}: {complaint}", hint=_COMPARE_HINT)


class _Reader:
    """Typed access to a config's values; every complaint names the source and the field."""

    def __init__(self, values: Mapping[str, Any], source: str) -> None:
        self._values = values
        self._source = source

    def _fail(self, complaint: str) -> EngineError:
        return EngineError(f"{self._source}: {complaint}", hint=_COMPARE_HINT)

    def _get(self, name: str, default: object) -> Any:
        value = self._values.get(name)
        if value is not None:
            return value
        if default is _MISSING:
            raise self._fail(f"{name} is missing")
        return default

    def integer(self, name: str, default: object = _MISSING, *, minimum: int = 1) -> int:
        value = self._get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or not minimum <= value <= _LARGEST_INTEGER:
            raise self._fail(f"{name} is {value!r}, not an integer of {minimum} to {_LARGEST_INTEGER}")
        return value

    def number(self, name: str, default: object = _MISSING, *, above: float | None = None) -> float:
        """A finite number of at least 0, or one above a bound."""
        value = self._get(name, default)
        valid = isinstance(value, (int, float)) and not isinstance(value, bool) and value < _LARGEST
        if not valid or not (value >= 0 if above is None else value > above):
            wanted = "of at least 0" if above is None else f"above {above:g}"
            raise self._fail(f"{name} is {value!r}, not a finite number {wanted}")
        return float(value)

    def limit(self, name: str) -> float:
        """A number that limits others; absent, zero and infinite mean no limit."""
        no_limit = self._values.get(name) in (None, 0, math.inf)
        return math.inf if no_limit else self.number(name)

    def token_ids(self, name: str, default: tuple[int, ...]) -> tuple[int, ...]:
        value = self._get(name, default)
        ids = tuple(value) if isinstance(value, (list, tuple)) else (value,)
        if not ids or any(isinstance(i, bool) or not isinstance(i, int) or i < 0 for i in ids):
            raise self._fail(f"{name} is {value!r}, neither a token id nor a list of them")
        return ids

    def ratios(self, layers: int, nextn: int) -> tuple[int, ...]:
        value = self._get("compress_ratios", _MISSING)
        known = (SLIDING, CSA, HCA)
        if not isinstance(value, list) or any(isinstance(r, bool) or r not in known for r in value):
            raise self._fail(f"compress_ratios is {value!r}, not a list of 0, 4 and 128")
        if len(value) not in (layers, layers + 1, layers + nextn):
            raise self._fail(f"compress_ratios has {len(value)} entries for {layers} layers and {nextn} MTP layer(s)")
        return (*map(int, value), *(SLIDING,) * nextn)[: layers + nextn]

    def yarn(self) -> YarnScaling | None:
        value = self._values.get("rope_scaling")
        if value is None:
            return None
        kind = value.get("rope_type") or value.get("type") if isinstance(value, dict) else value
        if kind != "yarn":
            raise self._fail(f"rope_scaling is {kind!r}, and only yarn is known")
        inner = _Reader(value, f"{self._source}: rope_scaling")
        return YarnScaling(
            factor=inner.number("factor", above=0),
            original_max_position_embeddings=inner.integer("original_max_position_embeddings"),
            beta_fast=inner.number("beta_fast", 32.0, above=0),
            beta_slow=inner.number("beta_slow", 1.0, above=0),
        )

    def block_size(self) -> tuple[int, int]:
        quantization = self._values.get("quantization_config") or {}
        if not isinstance(quantization, dict):
            raise self._fail(f"quantization_config is {quantization!r}, not an object")
        value = quantization.get("weight_block_size") or (128, 128)
        valid = isinstance(value, (list, tuple)) and len(value) == 2
        if not valid or any(isinstance(n, bool) or not isinstance(n, int) or n < 1 for n in value):
            raise self._fail(f"weight_block_size is {value!r}, not two positive integers")
        return (value[0], value[1])

    def require_supported(self) -> None:
        """Refuse variants that the published models do not have, rather than compute something else in silence."""
        fixed: dict[str, object] = {
            "num_key_value_heads": 1,
            "n_shared_experts": 1,
            "scoring_func": "sqrtsoftplus",
            "topk_method": "noaux_tc",
            "norm_topk_prob": True,
            "tie_word_embeddings": False,
            "hidden_act": "silu",
            "attention_bias": False,
        }
        for name, only in fixed.items():
            value = self._values.get(name, only)
            if value != only:
                raise self._fail(f"{name} is {value!r}, and the engine computes only {only!r}")
