"""What is saved is what is loaded: in bfloat16 exactly, quantised as the formats allow; and nothing broken is saved."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
import safetensors.torch
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from dsv4_engine.checkpoint.config_json import config_json
from dsv4_engine.checkpoint.configs import tiny_config
from dsv4_engine.checkpoint.layout import tensor_specs
from dsv4_engine.checkpoint.load import load_checkpoint
from dsv4_engine.checkpoint.quantize import fake_quantise
from dsv4_engine.checkpoint.save import save_checkpoint
from dsv4_engine.checkpoint.tiny import tiny_weights
from dsv4_engine.config import ModelConfig
from dsv4_engine.errors import EngineError
from engine_batches import GOLDEN

CONFIG = tiny_config()
NORM, EXPERT, HASHED = "layers.1.attn_norm.weight", "layers.1.ffn.experts.3.w2.weight", "layers.0.ffn.gate.tid2eid"


@pytest.fixture(scope="module")
def weights() -> dict[str, torch.Tensor]:
    """In full fp32, so that rounding has something to do."""
    torch.set_num_threads(1)
    noise = torch.Generator().manual_seed(3)
    return {
        name: values if spec.integer else values * (1 + 0.01 * torch.randn(values.shape, generator=noise))
        for (name, values), spec in (
            ((name, tiny_weights(CONFIG)[name]), spec) for name, spec in tensor_specs(CONFIG).items()
        )
    }


@pytest.mark.parametrize("quantised", [False, True])
def test_a_config_of_ours_is_the_official_one(quantised):
    official = json.loads((GOLDEN / ("quant" if quantised else ".") / "config.json").read_text())
    ours = json.loads(json.dumps(config_json(CONFIG, quantised=quantised)))
    if not quantised:  # of a model that was never quantised
        official["rope_scaling"]["rope_type"] = "yarn"
        official.pop("expert_dtype", None)
    official["rope_scaling"]["rope_theta"] = CONFIG.rope_theta
    assert ours == official
    assert ModelConfig.from_dict(ours) == CONFIG


@pytest.mark.parametrize(
    "changes",
    [
        {"rope_scaling": None},
        {"swiglu_limit": math.inf},
        {"eos_token_ids": (1, 7)},
        {"num_nextn_predict_layers": 0, "compress_ratios": (0, 4, 128, 4)},
        {"weight_block_size": (64, 32)},
    ],
)
def test_other_shapes_survive_the_config(changes):
    config = replace(CONFIG, **changes)
    text = json.dumps(config_json(config, quantised=True), allow_nan=False)
    assert ModelConfig.from_dict(json.loads(text)) == config


def test_bfloat16_is_exact(tmp_path, weights):
    save_checkpoint(tmp_path / "new" / "folder", CONFIG, weights, quantised=False)
    config, loaded = load_checkpoint(tmp_path / "new" / "folder")
    assert config == CONFIG and loaded.keys() == weights.keys()
    for name, spec in tensor_specs(CONFIG).items():
        kept = weights[name] if spec.fp32 or spec.integer else weights[name].bfloat16().float()
        assert torch.equal(loaded[name], kept), name
    assert sorted(path.name for path in (tmp_path / "new" / "folder").iterdir()) == ["config.json", "model.safetensors"]


def test_quantised_comes_back_as_training_simulates_it(tmp_path, weights):
    save_checkpoint(tmp_path, CONFIG, weights, quantised=True)
    _, loaded = load_checkpoint(tmp_path)
    for name, spec in tensor_specs(CONFIG).items():
        assert torch.equal(loaded[name], fake_quantise(spec, weights[name])), name
        if spec.quantised:
            bound = 0.13 if spec.expert is not None else 0.04
            assert 0 < (loaded[name] - weights[name]).norm() / weights[name].norm() < bound, name


def test_saving_what_was_loaded_changes_no_value(tmp_path, weights):
    for quantised in (False, True):
        first, second = tmp_path / f"{quantised}1", tmp_path / f"{quantised}2"
        save_checkpoint(first, CONFIG, weights, quantised=quantised)
        once = load_checkpoint(first)[1]
        save_checkpoint(second, CONFIG, once, quantised=quantised)
        twice = load_checkpoint(second)[1]
        assert all(torch.equal(once[name], twice[name]) for name in once)


def test_names_dtypes_and_shapes_are_those_of_the_official_format(tmp_path, weights):
    save_checkpoint(tmp_path, CONFIG, weights, quantised=True)
    ours, official = load_file(tmp_path / "model.safetensors"), load_file(GOLDEN / "quant" / "model.safetensors")
    assert ours.keys() == official.keys()
    for name, tensor in official.items():
        assert (ours[name].dtype, ours[name].shape) == (tensor.dtype, tensor.shape), name
    save_checkpoint(tmp_path, CONFIG, weights, quantised=False)
    ours, official = load_file(tmp_path / "model.safetensors"), load_file(GOLDEN / "model.safetensors")
    assert {n: (t.dtype, t.shape) for n, t in ours.items()} == {n: (t.dtype, t.shape) for n, t in official.items()}


def test_equal_weights_give_equal_bytes(tmp_path, weights):
    shuffled = dict(reversed(weights.items()))
    for name, given in (("a", weights), ("b", shuffled)):
        save_checkpoint(tmp_path / name, CONFIG, given, quantised=True)
    for file in ("config.json", "model.safetensors"):
        assert (tmp_path / "a" / file).read_bytes() == (tmp_path / "b" / file).read_bytes()


def test_files_are_as_open_as_any_other(tmp_path, weights):
    save_checkpoint(tmp_path, CONFIG, weights, quantised=False)
    (tmp_path / "other").write_text("")
    assert len({path.stat().st_mode for path in tmp_path.iterdir()}) == 1


def test_views_and_trainable_parameters_are_saved(tmp_path, weights):
    turned = {name: values.t().contiguous().t() if values.dim() == 2 else values for name, values in weights.items()}
    turned = {n: v.requires_grad_() if v.is_floating_point() else v for n, v in turned.items()}
    save_checkpoint(tmp_path / "a", CONFIG, turned, quantised=True)
    save_checkpoint(tmp_path / "b", CONFIG, weights, quantised=True)
    assert (tmp_path / "a/model.safetensors").read_bytes() == (tmp_path / "b/model.safetensors").read_bytes()


def _spoiled(name: str, value: float):
    def spoil(weights):
        weights[name] = weights[name].clone()
        weights[name].view(-1)[5] = value

    return spoil


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (_spoiled(NORM, math.nan), [NORM, "not finite"]),
        (_spoiled(EXPERT, math.inf), [EXPERT, "not finite"]),
        (_spoiled(EXPERT, -3.4e38), [EXPERT, "not finite"]),
        (_spoiled(HASHED, 8), [HASHED, "0 to 7"]),
        (_spoiled(HASHED, -1), [HASHED, "0 to 7"]),
        (lambda w: w.update({EXPERT: w[EXPERT].t()}), [EXPERT, "[64, 128]", "[128, 64]"]),
        (lambda w: w.update({HASHED: w[HASHED].float()}), [HASHED, "float32", "integers"]),
        (lambda w: w.update({NORM: w[NORM].long()}), [NORM, "int64", "floating-point"]),
        (lambda w: w.pop(NORM), [NORM, "missing"]),
        (lambda w: w.update({"layers.9.x": torch.ones(1)}), ["layers.9.x", "unknown"]),
    ],
)
def test_what_is_broken_is_refused_and_nothing_is_written(tmp_path, weights, spoil, words):
    broken = dict(weights)
    spoil(broken)
    with pytest.raises(EngineError) as caught:
        save_checkpoint(tmp_path / "out", CONFIG, broken, quantised=True)
    assert all(word in caught.value.message for word in words) and "\n" not in caught.value.message
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_take_it_is_refused_with_a_sentence(tmp_path, weights):
    (tmp_path / "model.safetensors.index.json").write_text("{}")
    with pytest.raises(EngineError, match="several shards"):
        save_checkpoint(tmp_path, CONFIG, weights, quantised=False)
    (tmp_path / "file").write_text("")
    with pytest.raises(EngineError, match="cannot be written"):
        save_checkpoint(tmp_path / "file" / "below", CONFIG, weights, quantised=False)


def test_a_full_disk_leaves_the_checkpoint_before(tmp_path, weights, monkeypatch):
    save_checkpoint(tmp_path, CONFIG, weights, quantised=False)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def fails(tensors, path, metadata):
        path.write_bytes(b"half")
        raise SafetensorError("No space left on device")

    monkeypatch.setattr(safetensors.torch, "save_file", fails)
    with pytest.raises(EngineError, match="cannot be written: No space left"):
        save_checkpoint(tmp_path, CONFIG, weights, quantised=True)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_no_weights_ever_lie_under_another_model_s_config(tmp_path, weights, monkeypatch):
    other = replace(CONFIG, rope_theta=5e5)
    save_checkpoint(tmp_path, other, weights, quantised=False)
    (tmp_path / "README.md").write_text("kept")
    kept = Path.replace

    def interrupted(path, target):
        if path.name == "config.json.part":
            raise KeyboardInterrupt
        return kept(path, target)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", interrupted)
        with pytest.raises(KeyboardInterrupt):
            save_checkpoint(tmp_path, CONFIG, weights, quantised=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["README.md", "model.safetensors"]
    with pytest.raises(EngineError, match=r"config\.json"):
        load_checkpoint(tmp_path)
    save_checkpoint(tmp_path, CONFIG, weights, quantised=False)
    assert load_checkpoint(tmp_path)[0] == CONFIG and (tmp_path / "README.md").read_text() == "kept"
