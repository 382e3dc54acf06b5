"""Which model a name or a folder means. No torch, so that a launcher can refuse a model before it starts any rank."""

from __future__ import annotations

from pathlib import Path

from dsv4_engine.config import ModelConfig, YarnScaling
from dsv4_engine.errors import EngineError

TINY_NAME = "dsv4-tiny"


def load_config(path: Path | str) -> ModelConfig:
    """The config of a checkpoint folder or of the built-in `dsv4-tiny`; EngineError where there is none."""
    if str(path) == TINY_NAME:
        return tiny_config()
    folder = Path(path)
    if not folder.exists():
        raise EngineError(f"model {path} does not exist", hint=f"give a checkpoint folder, or {TINY_NAME}")
    if not folder.is_dir():
        raise EngineError(f"model {path} is a file, not a folder", hint="give the folder that holds config.json")
    return ModelConfig.from_folder(folder)


def tiny_config() -> ModelConfig:
    """Every kind of layer once or twice: window only, ratio 4 (with indexer), ratio 128, and MTP; byte vocabulary."""
    return ModelConfig(
        vocab_size=320,
        hidden_size=128,
        num_hidden_layers=4,
        num_nextn_predict_layers=1,
        num_attention_heads=8,
        head_dim=64,
        qk_rope_head_dim=16,
        q_lora_rank=48,
        o_groups=4,
        o_lora_rank=32,
        n_routed_experts=8,
        num_experts_per_tok=2,
        moe_intermediate_size=64,
        routed_scaling_factor=1.5,
        swiglu_limit=1.5,
        num_hash_layers=1,
        index_n_heads=16,
        index_head_dim=32,
        index_topk=16,
        sliding_window=32,
        compress_ratios=(0, 4, 128, 4, 0),
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
