"""A model's shape as the `config.json` of its checkpoint, in the official field names.

DeepSeek's own code, SGLang and transformers (5.24) read these names; transformers reads `compress_ratios`,
`num_hash_layers`, `qk_rope_head_dim` and `rope_scaling` for what it calls otherwise.
"""

from __future__ import annotations

import math
from typing import Any

from dsv4_engine.config import ModelConfig, YarnScaling


def config_json(config: ModelConfig, *, quantised: bool) -> dict[str, Any]:
    """What `ModelConfig.from_dict` turns into an equal config. quantised: weights are fp8 and mxfp4, not bfloat16."""
    c = config
    values: dict[str, Any] = {
        "architectures": ["DeepseekV4ForCausalLM"],
        "model_type": "deepseek_v4",
        "torch_dtype": "bfloat16",
        "vocab_size": c.vocab_size,
        "bos_token_id": c.bos_token_id,
        "eos_token_id": c.eos_token_ids[0] if len(c.eos_token_ids) == 1 else list(c.eos_token_ids),
        "max_position_embeddings": c.max_position_embeddings,
        "tie_word_embeddings": False,
        "hidden_size": c.hidden_size,
        "num_hidden_layers": c.num_hidden_layers,
        "num_nextn_predict_layers": c.num_nextn_predict_layers,
        "rms_norm_eps": c.rms_norm_eps,
        "initializer_range": 0.02,
        "use_cache": True,
        "attention_bias": False,
        "attention_dropout": 0.0,
        "num_attention_heads": c.num_attention_heads,
        "num_key_value_heads": 1,
        "head_dim": c.head_dim,
        "qk_rope_head_dim": c.qk_rope_head_dim,
        "q_lora_rank": c.q_lora_rank,
        "o_groups": c.o_groups,
        "o_lora_rank": c.o_lora_rank,
        "sliding_window": c.sliding_window,
        "compress_ratios": list(c.compress_ratios),
        "index_n_heads": c.index_n_heads,
        "index_head_dim": c.index_head_dim,
        "index_topk": c.index_topk,
        "rope_theta": c.rope_theta,
        "compress_rope_theta": c.compress_rope_theta,
        "rope_scaling": None if c.rope_scaling is None else _yarn(c.rope_scaling, c.rope_theta),
        "hidden_act": "silu",
        "n_routed_experts": c.n_routed_experts,
        "n_shared_experts": 1,
        "num_experts_per_tok": c.num_experts_per_tok,
        "num_hash_layers": c.num_hash_layers,
        "moe_intermediate_size": c.moe_intermediate_size,
        "scoring_func": "sqrtsoftplus",
        "topk_method": "noaux_tc",
        "norm_topk_prob": True,
        "routed_scaling_factor": c.routed_scaling_factor,
        "swiglu_limit": c.swiglu_limit if math.isfinite(c.swiglu_limit) else None,
        "hc_mult": c.hc_mult,
        "hc_sinkhorn_iters": c.hc_sinkhorn_iters,
        "hc_eps": c.hc_eps,
    }
    return values | _quantization(c) if quantised else values


def _yarn(yarn: YarnScaling, rope_theta: float) -> dict[str, Any]:
    """Tagged under both names; the base in it is there for readers that insist on one, and is not yarn's."""
    return {
        "type": "yarn",
        "rope_type": "yarn",
        "rope_theta": rope_theta,
        "factor": yarn.factor,
        "original_max_position_embeddings": yarn.original_max_position_embeddings,
        "beta_fast": yarn.beta_fast,
        "beta_slow": yarn.beta_slow,
    }


def _quantization(c: ModelConfig) -> dict[str, Any]:
    return {
        "expert_dtype": "fp4",
        "quantization_config": {
            "quant_method": "fp8",
            "fmt": "e4m3",
            "scale_fmt": "ue8m0",
            "activation_scheme": "dynamic",
            "weight_block_size": list(c.weight_block_size),
        },
    }
