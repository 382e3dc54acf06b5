"""The quantised golden checkpoint: weights are dequantised on load and activations stay as they are."""

from __future__ import annotations

from safetensors.torch import load_file

from dsv4_engine.checkpoint.load import load_checkpoint
from engine_batches import GOLDEN, make_batch, make_runner, worst


def test_dequantised_weights_give_the_golden_logits():
    golden = load_file(GOLDEN / "quant" / "golden_weight_dequant_only.safetensors")
    runner = make_runner(*load_checkpoint(GOLDEN / "quant"))
    prompts = [name.removesuffix(".input_ids") for name in golden if name.endswith(".input_ids")]
    assert len(prompts) == 4
    for prompt in prompts:
        logits = runner.forward_target(make_batch((1, 0, golden[f"{prompt}.input_ids"]))).logits
        assert worst(logits, golden[f"{prompt}.logits"]) < 2e-5, prompt
