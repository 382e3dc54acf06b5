"""The shape of `dsv4-nano`: every kind of layer, small enough to train in minutes and to serve on a laptop."""

from __future__ import annotations

from dsv4_engine.config import ModelConfig, YarnScaling


def nano_config() -> ModelConfig:
    """5.4 M parameters over bytes: one hash layer, ratios 0, 4 and 128, and an MTP layer.

    Widths are multiples of 32, so that experts fit mxfp4 blocks; heads, groups and experts divide over 2 and 4 ranks.
    The window is half of the published one: what lies behind it has to come from compressed entries.
    """
    return ModelConfig(
        vocab_size=320,
        hidden_size=192,
        num_hidden_layers=6,
        num_nextn_predict_layers=1,
        num_attention_heads=8,
        head_dim=64,
        qk_rope_head_dim=16,
        q_lora_rank=96,
        o_groups=4,
        o_lora_rank=48,
        n_routed_experts=8,
        num_experts_per_tok=2,
        moe_intermediate_size=96,
        routed_scaling_factor=1.5,
        swiglu_limit=10.0,
        num_hash_layers=1,
        index_n_heads=16,
        index_head_dim=32,
        index_topk=32,
        sliding_window=64,
        compress_ratios=(0, 4, 128, 4, 128, 4, 0),
        rope_theta=10000.0,
        compress_rope_theta=160000.0,
        rope_scaling=YarnScaling(factor=16.0, original_max_position_embeddings=256),
        max_position_embeddings=4096,
        rms_norm_eps=1e-6,
        hc_mult=4,
        hc_sinkhorn_iters=20,
        hc_eps=1e-6,
        bos_token_id=0,
        eos_token_ids=(1,),
        weight_block_size=(128, 128),
    )
