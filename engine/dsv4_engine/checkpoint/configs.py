"""Which model a name or a folder means. No torch, so that a launcher can refuse a model before it starts any rank."""

from __future__ import annotations

import difflib
from pathlib import Path

from dsv4_engine.config import ModelConfig, YarnScaling
from dsv4_engine.errors import EngineError

DEFAULT_MODEL = "dsv4-nano"
TINY_NAME = "dsv4-tiny"
SHIPPED = (DEFAULT_MODEL, "dsv4-nano-fp4")
"""Trained checkpoints that come with the package."""
BUNDLED = (*SHIPPED, TINY_NAME)
"""Every name that stands for a model by itself. A folder of the same name is asked for as `./dsv4-nano`."""
FOLDER_HINT = f"give a checkpoint folder, or a bundled model: {', '.join(BUNDLED)}"

_MODELS = Path(__file__).resolve().parents[1] / "models"


def model_folder(model: Path | str) -> Path | None:
    """Where a model's files lie: a bundled name's folder inside the package, else the path that `model` is itself.

    None for `dsv4-tiny`, which is made from a seed and has no files. Whether the folder exists is not asked here.
    """
    if str(model) == TINY_NAME:
        return None
    return _MODELS / str(model) if str(model) in SHIPPED else Path(model)


def load_config(model: Path | str) -> ModelConfig:
    """The config of a bundled model or a checkpoint folder; EngineError where there is none."""
    folder = model_folder(model)
    if folder is None:
        return tiny_config()
    if not folder.exists():
        raise _absent(model, folder)
    if not folder.is_dir():
        raise EngineError(f"model {model} is a file, not a folder", hint="give the folder that holds config.json")
    return ModelConfig.from_folder(folder)


def _absent(model: Path | str, folder: Path) -> EngineError:
    if str(model) in SHIPPED:
        return EngineError(
            f"the bundled model {model} is not in this installation: {folder} does not exist",
            hint=f"install the package again, or use {TINY_NAME}, which needs no files",
        )
    meant = difflib.get_close_matches(str(model), BUNDLED, n=1)
    hint = f"did you mean {meant[0]}? Bundled are {', '.join(BUNDLED)}" if meant else FOLDER_HINT
    return EngineError(f"model {model} does not exist", hint=hint)


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
