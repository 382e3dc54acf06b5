"""No shape is special: models of other sizes, ratios and head counts against a slow float64 one."""

from __future__ import annotations

import json

import pytest
import torch

from dsv4_engine.checkpoint.layout import tensor_specs
from dsv4_engine.config import ModelConfig
from engine_batches import GOLDEN, make_batch, make_runner, poison, random_ids, run_chunks, worst
from naive_dsv4 import NaiveModel

SHAPES = {
    "two streams, ratio-128 first": {
        "hc_mult": 2, "hc_sinkhorn_iters": 3, "hc_eps": 1e-4, "rms_norm_eps": 1e-4, "hidden_size": 24,
        "num_hidden_layers": 3, "num_hash_layers": 2, "compress_ratios": [128, 4, 0, 0],
        "num_attention_heads": 6, "head_dim": 20, "qk_rope_head_dim": 12, "o_groups": 3, "o_lora_rank": 5,
        "q_lora_rank": 14, "n_routed_experts": 5, "num_experts_per_tok": 3, "moe_intermediate_size": 10,
        "routed_scaling_factor": 2.5, "swiglu_limit": 0.4, "index_n_heads": 12, "index_head_dim": 28,
        "index_topk": 5, "sliding_window": 9, "vocab_size": 50,
        "rope_scaling": {"type": "yarn", "factor": 4, "beta_fast": 8, "beta_slow": 1,
                         "original_max_position_embeddings": 64},
    },
    "three streams, all of the head rotates, many experts": {
        "hc_mult": 3, "hidden_size": 16, "num_hidden_layers": 2, "num_hash_layers": 0, "compress_ratios": [4, 128],
        "num_attention_heads": 2, "head_dim": 8, "qk_rope_head_dim": 8, "o_groups": 1, "o_lora_rank": 9,
        "q_lora_rank": 11, "n_routed_experts": 35, "num_experts_per_tok": 4, "moe_intermediate_size": 6,
        "routed_scaling_factor": 1.0, "swiglu_limit": 10, "index_n_heads": 8, "index_head_dim": 10,
        "index_topk": 100, "sliding_window": 140, "vocab_size": 33, "num_nextn_predict_layers": 0,
        "rope_scaling": None,
    },
}  # fmt: skip


def model(name: str) -> tuple[ModelConfig, dict[str, torch.Tensor]]:
    values = json.loads((GOLDEN / "config.json").read_text()) | SHAPES[name]
    config, generator = ModelConfig.from_dict(values), torch.Generator().manual_seed(11)
    weights = {}
    for tensor, spec in tensor_specs(config).items():
        shape = tuple(spec.shape)
        if tensor.endswith("tid2eid"):
            rows = [torch.randperm(config.n_routed_experts, generator=generator) for _ in range(shape[0])]
            weights[tensor] = torch.stack(rows)[:, : shape[1]]
            continue
        noise = torch.randn(shape, generator=generator)
        spread = 0.3 if len(shape) == 1 or tensor.endswith(("ape", "_fn")) else 1.3 * shape[-1] ** -0.5
        weights[tensor] = noise * spread + (1.0 if tensor.endswith(("norm.weight", "_scale")) else 0.0)
    return config, weights


@pytest.fixture(scope="module", params=SHAPES)
def case(request):
    config, weights = model(request.param)
    ids = random_ids(400, config.vocab_size, seed=5)
    logits, streams = NaiveModel(config, weights).target(ids.tolist())
    return config, weights, ids, logits.float(), streams


@pytest.mark.parametrize("sizes", [(400,), (130, 1, 1, 125, 3), (50,)])
def test_logits_equal_the_slow_model(case, sizes):
    config, weights, ids, logits, _ = case
    runner = make_runner(config, weights)
    poison(runner)
    assert worst(run_chunks(runner, ids, sizes, slot=2), logits) < 2e-5


def test_mtp_logits_equal_the_slow_model(case):
    config, weights, ids, _, streams = case
    runner = make_runner(config, weights)
    assert runner.has_mtp == config.has_mtp
    if not config.has_mtp:
        with pytest.raises(AssertionError, match="no MTP layer"):
            runner.forward_mtp(make_batch((1, 0, ids)), streams.float())
        return
    expected = NaiveModel(config, weights).mtp(streams, ids.roll(-1).tolist()).float()
    poison(runner)
    assert worst(runner.forward_mtp(make_batch((3, 0, ids.roll(-1))), streams.float()).logits, expected) < 2e-5
