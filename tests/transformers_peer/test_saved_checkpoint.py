"""A checkpoint that this project saves is one that transformers loads, and it computes the same logits.

Needs transformers 5.24 or later, which the project itself does not; without it these tests are skipped. To run them,
keep it and what it needs in a folder of its own:

    pip install --target TF --no-deps transformers==5.24.0 huggingface_hub tokenizers regex pyyaml requests tqdm \\
        filelock fsspec packaging typer rich hf-xet httpx anyio
    PYTHONPATH=TF pytest tests/transformers_peer
"""

from __future__ import annotations

import importlib.util
import os
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dsv4_engine.checkpoint.configs import model_folder, tiny_config
from dsv4_engine.checkpoint.load import load_checkpoint
from dsv4_engine.checkpoint.save import save_checkpoint
from dsv4_engine.checkpoint.tiny import tiny_weights
from dsv4_engine.config import ModelConfig
from dsv4_engine.training.nano import nano_config
from engine_batches import make_batch, make_runner, random_ids, worst

# Not imported here: it takes seconds, and other tests of the session need none of it.
if importlib.util.find_spec("transformers.models.deepseek_v4") if importlib.util.find_spec("transformers") else None:
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
else:
    pytest.skip("needs transformers 5.24 or later with deepseek_v4", allow_module_level=True)

LENGTHS = (1, 2, 5, 64, 65, 127, 128, 129, 300, 513, 700)


def peer_logits(folder: Path, prompts: list[torch.Tensor]) -> list[torch.Tensor]:
    """(T, V) of each prompt by itself: transformers pads prompts of this model wrongly."""
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(1)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    with torch.no_grad():
        return [model(ids[None], use_cache=False).logits[0].float() for ids in prompts]


def our_logits(folder: Path, prompts: list[torch.Tensor]) -> list[torch.Tensor]:
    runner = make_runner(*load_checkpoint(folder), context_len=max(map(len, prompts)))
    return [runner.forward_target(make_batch((1, 0, ids))).logits for ids in prompts]


CONFIGS: dict[str, ModelConfig] = {
    "nano": nano_config(),
    "tiny": tiny_config(),
    "no mtp, no yarn, no hash layer": replace(
        tiny_config(),
        num_nextn_predict_layers=0,
        compress_ratios=(4, 0, 128, 128),
        rope_scaling=None,
        num_hash_layers=0,
    ),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_transformers_loads_what_is_saved(tmp_path, name):
    config = CONFIGS[name]
    save_checkpoint(tmp_path, config, tiny_weights(config), quantised=False)
    prompts = [random_ids(length, seed=length) for length in LENGTHS]
    compared = zip(prompts, our_logits(tmp_path, prompts), peer_logits(tmp_path, prompts), strict=True)
    assert max(worst(ours, theirs) for _, ours, theirs in compared) < 1e-4


def test_transformers_computes_the_trained_model_alike():
    folder = model_folder("dsv4-nano")
    if not folder.exists():
        pytest.skip("this checkout has no trained dsv4-nano")
    text = Path(__file__).read_bytes()
    prompts = [torch.tensor([0, *(byte + 2 for byte in text[: length - 1])]) for length in LENGTHS]
    compared = zip(our_logits(folder, prompts), peer_logits(folder, prompts), strict=True)
    assert max(worst(ours, theirs) for ours, theirs in compared) < 1e-4
