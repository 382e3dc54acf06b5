"""Checkpoints in every layout that is used, and a sentence with the name of what is wrong for every other."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from dsv4_engine.checkpoint import configs
from dsv4_engine.checkpoint.configs import BUNDLED, DEFAULT_MODEL, SHIPPED, TINY_NAME, load_config, model_folder
from dsv4_engine.checkpoint.layout import tensor_specs
from dsv4_engine.checkpoint.load import load_checkpoint
from dsv4_engine.errors import EngineError
from dsv4_engine.parallel.place import ParallelSizes, Place
from dsv4_engine.parallel.sizes import require_divisible
from engine_batches import GOLDEN

HEAD_SINK = "layers.1.attn.attn_sink"


@pytest.fixture(scope="module")
def tensors() -> dict[str, torch.Tensor]:
    return load_file(GOLDEN / "model.safetensors")


@pytest.fixture(scope="module")
def quantised() -> dict[str, torch.Tensor]:
    return load_file(GOLDEN / "quant" / "model.safetensors")


def write(folder: Path, *shards: dict[str, torch.Tensor], index: bool = False, config: Path = GOLDEN) -> Path:
    """A checkpoint of one file, or of several with an index or without."""
    shutil.copy(config / "config.json", folder / "config.json")
    count = len(shards)
    names = [f"model-{i:05d}-of-{count:05d}.safetensors" for i in range(1, count + 1)]
    if count == 1:
        names = ["model.safetensors"]
    for name, shard in zip(names, shards, strict=True):
        save_file(shard, folder / name)
    if index:
        weight_map = {key: name for name, shard in zip(names, shards, strict=True) for key in shard}
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    return folder


def halves(tensors: dict[str, torch.Tensor]) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    keys = sorted(tensors)
    return {k: tensors[k] for k in keys[::2]}, {k: tensors[k] for k in keys[1::2]}


def refusal(path: Path | str, **options: int) -> str:
    with pytest.raises(EngineError) as caught:
        load_checkpoint(path, **options)
    assert caught.value.hint and "\n" not in caught.value.message
    return caught.value.message


@pytest.mark.parametrize("index", [True, False])
def test_shards_with_and_without_an_index_equal_one_file(tmp_path, tensors, index):
    config, one = load_checkpoint(GOLDEN)
    same_config, sharded = load_checkpoint(write(tmp_path, *halves(tensors), index=index))
    assert config == same_config and one.keys() == sharded.keys() == tensor_specs(config).keys()
    assert all(torch.equal(one[name], sharded[name]) for name in one)


def test_dtypes_follow_the_request_except_where_the_model_needs_fp32():
    _, weights = load_checkpoint(GOLDEN, dtype=torch.bfloat16)
    assert weights["layers.1.attn.wq_a.weight"].dtype == torch.bfloat16
    assert weights[HEAD_SINK].dtype == weights["layers.1.hc_attn_fn"].dtype == torch.float32
    assert weights["layers.0.ffn.gate.tid2eid"].dtype == torch.int64


def test_quantised_weights_are_close_to_those_they_were_made_from():
    _, exact = load_checkpoint(GOLDEN)
    _, rounded = load_checkpoint(GOLDEN / "quant")
    assert exact.keys() == rounded.keys()
    for name, weight in exact.items():
        limit = 0.2 if ".experts." in name else 0.04
        assert (weight - rounded[name]).double().norm() <= limit * weight.double().norm(), name


@pytest.mark.parametrize("stored_as", [torch.uint8, torch.int8])
def test_scales_and_packed_weights_as_plain_bytes(tmp_path, quantised, stored_as):
    single_bytes = (torch.float8_e8m0fnu, torch.int8)
    plain = {k: v.view(stored_as) if v.dtype in single_bytes else v for k, v in quantised.items()}
    _, expected = load_checkpoint(GOLDEN / "quant")
    _, weights = load_checkpoint(write(tmp_path, plain, config=GOLDEN / "quant"))
    assert all(torch.equal(weights[name], expected[name]) for name in expected)


@pytest.mark.parametrize("size", [2, 4])
def test_ranks_together_hold_the_whole_model(size):
    config, whole = load_checkpoint(GOLDEN)
    ranks = [load_checkpoint(GOLDEN, place=Place(rank=rank, sizes=ParallelSizes(tp=size)))[1] for rank in range(size)]
    for name, weight in whole.items():
        parts = [rank[name] for rank in ranks if name in rank]
        if ".ffn.experts." in name:
            assert len(parts) == 1 and torch.equal(parts[0], weight)
        elif name.endswith("wo_b.weight"):
            assert torch.equal(torch.cat(parts, 1), weight)
        elif name.endswith(("wq_b.weight", "attn_sink", "wo_a.weight", "weights_proj.weight")):
            assert torch.equal(torch.cat(parts), weight)
        elif name in ("embed.weight", "head.weight"):
            assert torch.equal(torch.cat(parts)[: config.vocab_size], weight)
        else:
            assert len(parts) == size and all(torch.equal(part, weight) for part in parts), name
    assert "layers.1.ffn.experts.0.w1.weight" in ranks[0] and "layers.1.ffn.experts.7.w1.weight" in ranks[-1]


def test_no_rank_divides_nothing():
    with pytest.raises(EngineError, match="over 0 ranks") as caught:
        require_divisible(load_config(GOLDEN), 0)
    assert "1, 2, 4" in caught.value.hint


@pytest.mark.parametrize("size", [3, 8, 16])
def test_sizes_that_do_not_divide_the_model(size):
    with pytest.raises(EngineError) as caught:
        load_checkpoint(GOLDEN, place=Place(sizes=ParallelSizes(tp=size)))
    assert f"over {size} ranks" in caught.value.message
    assert "1, 2, 4" in caught.value.hint


def test_paths_that_are_no_checkpoint(tmp_path):
    assert "does not exist" in refusal(tmp_path / "nowhere")
    (tmp_path / "file").write_text("")
    assert "not a folder" in refusal(tmp_path / "file")
    assert "no config.json" in refusal(tmp_path)
    (tmp_path / "config.json").write_text("{")
    assert "not JSON" in refusal(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "llama", "architectures": ["LlamaForCausalLM"]}')
    assert "llama" in refusal(tmp_path)
    shutil.copy(GOLDEN / "config.json", tmp_path / "config.json")
    assert "holds no weights" in refusal(tmp_path)


@pytest.mark.parametrize("index", [True, False])
def test_a_missing_shard_is_named(tmp_path, tensors, index):
    write(tmp_path, *halves(tensors), index=index)
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    assert "model-00002-of-00002.safetensors is missing" in refusal(tmp_path)


@pytest.mark.parametrize("keep", [0, 5, 1000, -1])
def test_a_cut_shard_is_named(tmp_path, tensors, keep):
    write(tmp_path, *halves(tensors), index=True)
    shard = tmp_path / "model-00001-of-00002.safetensors"
    shard.write_bytes(shard.read_bytes()[:keep])
    message = refusal(tmp_path)
    assert "model-00001-of-00002.safetensors" in message and "cut" in message


def test_a_damaged_index(tmp_path, tensors):
    write(tmp_path, *halves(tensors), index=True)
    for text, named in (
        ("{", "is not JSON"),
        ("[]", "holds no JSON object"),
        ("[" * 100_000, "is nested too deeply"),
        ("{}", "holds no weight_map"),
        ('{"weight_map": []}', "holds no weight_map"),
        ('{"weight_map": ["a"]}', "holds no weight_map"),
        ('{"weight_map": {}}', "holds no weight_map"),
        ('{"weight_map": {"a": 1}}', "holds no weight_map"),
        ('{"weight_map": {"a": ""}}', "holds no weight_map"),
    ):
        (tmp_path / "model.safetensors.index.json").write_text(text)
        assert f"model.safetensors.index.json {named}" in refusal(tmp_path)


def test_a_missing_tensor_is_named_with_its_shard(tmp_path, tensors):
    first, second = halves(tensors)
    write(tmp_path, first, second, index=True)
    shard = next(name for name, half in (("00001", first), ("00002", second)) if HEAD_SINK in half)
    half = {**(first if HEAD_SINK in first else second)}
    del half[HEAD_SINK]
    save_file(half, tmp_path / f"model-{shard}-of-00002.safetensors")
    assert f"tensor {HEAD_SINK} is missing" in (message := refusal(tmp_path))
    assert f"model-{shard}-of-00002" in message


def test_a_missing_scale_is_named(tmp_path, quantised):
    del (rest := dict(quantised))["layers.2.attn.wkv.scale"]
    assert "layers.2.attn.wkv.scale is missing" in refusal(write(tmp_path, rest, config=GOLDEN / "quant"))


def test_wrong_shapes_are_named_with_what_was_expected(tmp_path, tensors, quantised):
    wrong = tensors | {HEAD_SINK: torch.zeros(9)}
    message = refusal(write(tmp_path, wrong))
    assert HEAD_SINK in message and "[9] instead of [8]" in message
    scale = "layers.1.ffn.experts.3.w2.scale"
    message = refusal(write(tmp_path, quantised | {scale: quantised[scale][:, :1].contiguous()}))
    assert scale in message and "[128, 1] instead of [128, 2]" in message


def test_a_dtype_that_makes_no_sense_is_named(tmp_path, tensors):
    wrong = tensors | {HEAD_SINK: torch.zeros(8, dtype=torch.int32)}
    assert f"{HEAD_SINK} is stored as int32" in refusal(write(tmp_path, wrong))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.bool])
def test_scales_that_are_neither_bytes_nor_numbers_are_named_with_their_dtype(tmp_path, quantised, dtype):
    for name in ("layers.2.attn.wkv.scale", "layers.1.ffn.experts.3.w2.scale"):
        wrong = quantised | {name: quantised[name].view(torch.uint8).to(dtype)}
        message = refusal(write(tmp_path, wrong, config=GOLDEN / "quant"))
        assert f"{name} is stored as {str(dtype).removeprefix('torch.')}" in message


@pytest.mark.parametrize("offset", [-8, 8])
def test_experts_that_do_not_exist_are_refused(tmp_path, tensors, offset):
    name = "layers.0.ffn.gate.tid2eid"
    wrong = tensors | {name: tensors[name] + offset}
    assert f"{name} names experts outside 0 to 7" in refusal(write(tmp_path, wrong))


def test_transformers_names_get_a_hint(tmp_path, tensors):
    write(tmp_path, {f"model.{name}": tensor for name, tensor in tensors.items()})
    with pytest.raises(EngineError) as caught:
        load_checkpoint(tmp_path)
    assert "official" in caught.value.hint


@pytest.mark.parametrize("name", SHIPPED)
def test_a_shipped_model_is_a_checkpoint_of_the_package(tmp_path, monkeypatch, name):
    """Names are not looked up where the user happens to be."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).mkdir()
    config, weights = load_checkpoint(name)
    assert config == load_config(name) == load_config(DEFAULT_MODEL) and set(weights) == set(tensor_specs(config))
    assert (config.num_hidden_layers, config.hidden_size, config.vocab_size) == (6, 192, 320)
    assert {0, 4, 128} == set(config.compress_ratios) and config.has_mtp
    assert all(weight.isfinite().all() for weight in weights.values() if weight.is_floating_point())
    with pytest.raises(EngineError, match=r"no config\.json"):
        load_config(f"./{name}")


def test_the_shipped_models_differ_in_how_experts_are_stored():
    """The engine reads either; the second has the formats of the published checkpoints."""
    expert, shared, norm = "layers.1.ffn.experts.0.w1.weight", "layers.1.ffn.shared_experts.w1.weight", "norm.weight"
    stored = [load_file(f"{model_folder(name)}/model.safetensors") for name in SHIPPED]
    dtypes = [[str(tensors[name].dtype) for name in (expert, shared, norm)] for tensors in stored]
    assert dtypes[0] == ["torch.bfloat16"] * 3
    assert dtypes[1] == ["torch.int8", "torch.float8_e4m3fn", "torch.bfloat16"]


def test_every_bundled_name_means_one_place():
    folders = {name: model_folder(name) for name in BUNDLED}
    assert DEFAULT_MODEL in SHIPPED and folders.pop(TINY_NAME) is None
    assert set(folders) == set(SHIPPED)
    assert all(folder.name == name and folder.parent.name == "models" for name, folder in folders.items())
    assert model_folder("a/b") == Path("a/b")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("dsv4-nona", "did you mean dsv4-nano?"),
        ("dsv4-nano-fp8", "did you mean dsv4-nano-fp4?"),
        ("DSV4-tiny", "did you mean dsv4-tiny?"),
        ("no/such/folder", "give a checkpoint folder"),
    ],
)
def test_a_wrong_name_is_told_the_known_ones(name, hint):
    with pytest.raises(EngineError, match=f"model {name} does not exist") as caught:
        load_config(name)
    assert hint in caught.value.hint and all(each in caught.value.hint for each in BUNDLED)


def test_a_bundled_model_that_was_not_installed(tmp_path, monkeypatch):
    monkeypatch.setattr(configs, "_MODELS", tmp_path / "models")
    with pytest.raises(EngineError, match="dsv4-nano is not in this installation") as caught:
        load_checkpoint(DEFAULT_MODEL)
    assert TINY_NAME in caught.value.hint


def test_the_built_in_model_is_the_same_every_time_and_has_a_byte_vocabulary():
    config, first = load_checkpoint("dsv4-tiny")
    _, second = load_checkpoint("dsv4-tiny")
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert config == load_config("dsv4-tiny") and config.vocab_size >= 258
    assert {0, 4, 128} == set(config.compress_ratios) and config.has_mtp
    assert all(weight.isfinite().all() for weight in first.values() if weight.is_floating_point())
