"""Configs as they are published, and one sentence for those that the engine would compute wrongly."""

from __future__ import annotations

import json
import math

import pytest

from dsv4_engine.config import ModelConfig
from dsv4_engine.errors import EngineError
from engine_batches import GOLDEN

YARN = {"type": "yarn", "factor": 16, "original_max_position_embeddings": 256}


@pytest.fixture
def values():
    return json.loads((GOLDEN / "config.json").read_text())


def test_numbers_come_from_the_file(values):
    config = ModelConfig.from_dict(values)
    assert config.compress_ratios == (0, 4, 128, 4, 0)
    assert config.rope_scaling.factor == 16 and config.rope_scaling.original_max_position_embeddings == 256
    assert config.eos_token_ids == (1,) and config.weight_block_size == (128, 128)
    assert config == ModelConfig.from_folder(GOLDEN) == ModelConfig.from_folder(GOLDEN / "quant")


def test_variants_in_writing_mean_the_same(values):
    reference = ModelConfig.from_dict(values)
    del values["architectures"]
    assert ModelConfig.from_dict(values) == reference
    values["architectures"] = ["DeepseekV4ForCausalLM"]
    del values["model_type"]
    values["compress_ratios"] = [0, 4, 128, 4]
    values["rope_scaling"]["rope_type"] = values["rope_scaling"].pop("type")
    assert ModelConfig.from_dict(values) == reference
    values["eos_token_id"] = [1, 7]
    assert ModelConfig.from_dict(values).eos_token_ids == (1, 7)
    for no_limit in (None, 0, math.inf):
        values["swiglu_limit"] = no_limit
        assert ModelConfig.from_dict(values).swiglu_limit == math.inf
    values["compress_ratios"] = [0.0, 4.0, 128.0, 4.0]
    assert all(type(ratio) is int for ratio in ModelConfig.from_dict(values).compress_ratios)
    values["rope_scaling"] = YARN | {"rope_type": None}
    assert ModelConfig.from_dict(values).rope_scaling == reference.rope_scaling
    values["swiglu_limit"] = None
    assert ModelConfig.from_dict(values).swiglu_limit == math.inf


def test_a_model_without_mtp(values):
    values["num_nextn_predict_layers"] = 0
    config = ModelConfig.from_dict(values)
    assert not config.has_mtp and config.compress_ratios == (0, 4, 128, 4)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"hidden_size": None}, "hidden_size is missing"),
        ({"hidden_size": "128"}, "hidden_size"),
        ({"hidden_size": True}, "hidden_size"),
        ({"hc_mult": 0}, "hc_mult"),
        ({"compress_ratios": None}, "compress_ratios is missing"),
        ({"compress_ratios": [0, 4, 128]}, "3 entries for 4 layers"),
        ({"compress_ratios": [0, 4, 64, 4, 0]}, "compress_ratios"),
        ({"compress_ratios": [0, 4, 128, 4, 4]}, "MTP layer"),
        ({"rope_scaling": {"type": "linear", "factor": 2}}, "linear"),
        ({"rope_scaling": {"type": "yarn"}}, "factor is missing"),
        ({"scoring_func": "sigmoid"}, "scoring_func"),
        ({"n_shared_experts": 2}, "n_shared_experts"),
        ({"tie_word_embeddings": True}, "tie_word_embeddings"),
        ({"num_nextn_predict_layers": 2, "compress_ratios": [0, 4, 128, 4, 0, 0]}, "num_nextn_predict_layers"),
        ({"o_groups": 3}, "o_groups"),
        ({"num_experts_per_tok": 9}, "num_experts_per_tok"),
        ({"qk_rope_head_dim": 17}, "qk_rope_head_dim"),
        ({"qk_rope_head_dim": 48}, "index_head_dim"),
        ({"eos_token_id": 320}, "eos_token_id"),
        ({"eos_token_id": "</s>"}, "eos_token_id"),
        ({"rms_norm_eps": -1.0}, "rms_norm_eps"),
        ({"rms_norm_eps": math.nan}, "rms_norm_eps"),
        ({"max_position_embeddings": 2**31}, "max_position_embeddings"),
        ({"sliding_window": 10**30}, "sliding_window"),
        ({"rms_norm_eps": math.inf}, "rms_norm_eps"),
        ({"hc_eps": 10**400}, "hc_eps"),
        ({"quantization_config": {"weight_block_size": [128]}}, "weight_block_size"),
        ({"quantization_config": {"weight_block_size": 128}}, "weight_block_size"),
        ({"quantization_config": {"weight_block_size": [True, True]}}, "weight_block_size"),
        ({"quantization_config": [1]}, "quantization_config"),
        ({"compress_ratios": [0.5, 4, 128, 4, 0]}, "compress_ratios"),
        ({"compress_ratios": [False, 4, 128, 4, False]}, "compress_ratios"),
        ({"compress_ratios": [[0], 4, 128, 4, 0]}, "compress_ratios"),
        ({"rope_theta": 0}, "rope_theta is 0"),
        ({"compress_rope_theta": 0}, "compress_rope_theta is 0"),
        ({"compress_rope_theta": 1}, "compress_rope_theta is 1"),
        ({"compress_rope_theta": math.inf}, "compress_rope_theta is inf"),
        ({"rope_scaling": YARN | {"factor": 0}}, "rope_scaling: factor is 0"),
        ({"rope_scaling": YARN | {"beta_fast": 0}}, "beta_fast is 0"),
        ({"rope_scaling": YARN | {"beta_slow": 0.0}}, "beta_slow is 0"),
        ({"model_type": None, "architectures": 5}, "not a DeepSeek-V4 config"),
    ],
)
def test_what_cannot_be_right_is_named(values, change, named):
    with pytest.raises(EngineError) as caught:
        ModelConfig.from_dict(values | change, source="config.json")
    assert caught.value.message.startswith("config.json") and named in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize("model_type", ["deepseek_v3", "llama", None])
def test_other_models_are_refused_by_name(values, model_type):
    values |= {"model_type": model_type, "architectures": ["LlamaForCausalLM"]}
    with pytest.raises(EngineError, match=f"not a DeepSeek-V4 config.*{model_type or 'LlamaForCausalLM'}"):
        ModelConfig.from_dict(values)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("[" * 100_000, "nested too deeply"),
        ('{"a":' * 100_000, "nested too deeply"),
        ("[1", "not JSON: .* at line 1"),
        ("[1]", "holds no JSON object"),
        ("\ufeff{}", "not JSON"),
    ],
)
def test_files_that_hold_no_object_are_named(tmp_path, text, named):
    (tmp_path / "config.json").write_text(text, encoding="utf-8")
    with pytest.raises(EngineError, match=f"config.json.*{named}") as caught:
        ModelConfig.from_folder(tmp_path)
    assert caught.value.hint and "\n" not in caught.value.message
