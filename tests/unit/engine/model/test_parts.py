"""Single parts of the model, by properties that follow from their definitions."""

from __future__ import annotations

import math

import pytest
import torch

from dsv4_engine.checkpoint.configs import tiny_config
from dsv4_engine.checkpoint.layout import Split
from dsv4_engine.checkpoint.load import load_checkpoint
from dsv4_engine.checkpoint.sharding import shard
from dsv4_engine.checkpoint.tiny import tiny_weights
from dsv4_engine.config import YarnScaling
from dsv4_engine.model import moe
from dsv4_engine.model.hyper_connections import sinkhorn
from dsv4_engine.model.moe import MixtureOfExperts, swiglu
from dsv4_engine.model.norm import rms_norm
from dsv4_engine.model.rope import inverse_frequencies, rotate, rotation
from dsv4_engine.model.trace import ignore
from dsv4_engine.model.vocabulary import Vocabulary
from dsv4_engine.model.weights import WeightReader
from dsv4_engine.parallel.experts import ExpertGroup
from dsv4_engine.parallel.group import TensorParallelGroup
from dsv4_engine.parallel.groups import ParallelGroups
from dsv4_engine.parallel.place import ParallelSizes, Place
from engine_batches import CPU, GOLDEN, golden_runner, make_batch, make_runner, random_ids, worst


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_sinkhorn_matrices_are_nearly_doubly_stochastic():
    matrices = sinkhorn(normal(50, 4, 4), 20, 1e-6)
    assert worst(matrices.sum(1), torch.ones(50, 4)) < 1e-4
    assert worst(matrices.sum(2), torch.ones(50, 4)) < 1e-3
    assert matrices.min() > 0


def test_the_last_sinkhorn_step_divides_by_the_columns():
    once = sinkhorn(3 * normal(5, 4, 4), 1, 1e-6)
    assert worst(once.sum(1), torch.ones(5, 4)) < 1e-4
    assert (once.sum(2) - 1).abs().max() > 0.1


def test_rms_norm_computes_wide_and_returns_the_dtype_it_got():
    x = (1000 * normal(3, 64)).to(torch.bfloat16)
    normed = rms_norm(x, None, 1e-6)
    assert normed.dtype == torch.bfloat16
    assert worst(normed.float().square().mean(-1), torch.ones(3)) < 1e-2


def test_rotation_keeps_lengths_and_depends_on_distance_only():
    query, key, frequencies = normal(1, 24), normal(1, 24, seed=1), inverse_frequencies(16, 10000.0, None)

    def dot(at: int, by: int) -> float:
        turned = [rotate(x, rotation(torch.tensor([p]), frequencies)) for x, p in ((query, at), (key, by))]
        assert torch.equal(turned[0][:, :8], query[:, :8])
        return float((turned[0] * turned[1]).sum())

    assert dot(17, 12) == pytest.approx(dot(105, 100), abs=1e-4)
    assert dot(17, 12) != pytest.approx(dot(17, 13), abs=1e-2)
    there = rotate(query, rotation(torch.tensor([9]), frequencies))
    assert worst(rotate(there, rotation(torch.tensor([9]), frequencies).conj()), query) < 1e-6


def test_yarn_keeps_fast_pairs_and_stretches_slow_ones():
    yarn = YarnScaling(factor=16, original_max_position_embeddings=65536, beta_fast=32, beta_slow=1)
    plain, scaled = (inverse_frequencies(64, 160000.0, y) for y in (None, yarn))
    low = math.floor(64 * math.log(65536 / (32 * 2 * math.pi)) / (2 * math.log(160000)))
    high = math.ceil(64 * math.log(65536 / (2 * math.pi)) / (2 * math.log(160000)))
    assert 0 < low < high < 32
    assert torch.equal(plain[: low + 1], scaled[: low + 1])
    assert torch.allclose(plain[high:] / 16, scaled[high:])
    assert all(plain[i] / 16 < scaled[i] < plain[i] for i in range(low + 1, high))


def test_yarn_ramp_of_no_width_is_a_step():
    yarn = YarnScaling(factor=4, original_max_position_embeddings=8, beta_fast=3, beta_slow=2)
    assert torch.allclose(inverse_frequencies(8, 10000.0, yarn)[1:] * 4, inverse_frequencies(8, 10000.0, None)[1:])


def test_swiglu_limits_the_gate_above_only():
    gate, up = torch.tensor([9.0, -9.0, 1.0]), torch.tensor([-9.0, 9.0, 0.5])
    expected = torch.nn.functional.silu(torch.tensor([2.0, -9.0, 1.0])) * torch.tensor([-2.0, 2.0, 0.5])
    assert torch.equal(swiglu(gate, up, 2.0), expected)
    assert swiglu(gate, up, math.inf)[0] == torch.nn.functional.silu(gate[0]) * -9


def experts(layer: int) -> tuple[MixtureOfExperts, torch.Tensor, torch.Tensor]:
    config, weights = load_checkpoint(GOLDEN)
    reader = WeightReader(weights, device=CPU, dtype=torch.float32).below(f"layers.{layer}.ffn")
    group = ParallelGroups.single().experts
    return MixtureOfExperts(config, reader, by_token=layer == 0, group=group), normal(70, 128), random_ids(70, seed=1)


@pytest.mark.parametrize("layer", [0, 1])
def test_one_large_product_equals_a_product_for_each_expert(layer, monkeypatch):
    layer_experts, x, ids = experts(layer)
    dense = layer_experts(x, ids, ignore)
    monkeypatch.setattr(moe, "_DENSE_MAX_EXPERTS", 0)
    assert worst(layer_experts(x, ids, ignore), dense) < 1e-5


def test_the_router_bias_steers_the_choice_and_not_the_weight():
    layer_experts, x, ids = experts(1)
    router = layer_experts.router
    before, weights = router(x, ids)
    router._bias = torch.where(torch.arange(8) == 5, 100.0, router._bias)
    after, steered = router(x, ids)
    assert (after == 5).any(1).all() and not (before == 5).any(1).all()
    unchanged = (before == 5).any(1)
    assert unchanged.any()
    assert worst(steered[unchanged].sort(1).values, weights[unchanged].sort(1).values) < 1e-6
    assert worst(steered.sum(1), torch.full((70,), 1.5)) < 1e-6


def test_hash_layers_look_at_the_token_only():
    layer_experts, x, ids = experts(0)
    chosen, _ = layer_experts.router(x, ids)
    again, _ = layer_experts.router(-x, ids)
    assert torch.equal(chosen, again) and len(chosen.unique(dim=0)) > 1


def test_ties_at_zero_choose_the_same_entries_however_the_prompt_is_cut():
    config, weights = load_checkpoint(GOLDEN)
    weights = dict(weights) | {
        name: torch.zeros_like(weights[name]) for name in weights if name.endswith("indexer.weights_proj.weight")
    }
    runner, ids = make_runner(config, weights), random_ids(200, seed=2)
    chosen = runner.trace_target(make_batch((1, 0, ids)))["L1.index_topk"]
    assert torch.equal(chosen[-1], torch.arange(config.index_topk))
    whole = runner.forward_target(make_batch((1, 0, ids))).logits
    parts = [runner.forward_target(make_batch((2, at, ids[at : at + 40]))).logits for at in range(0, 200, 40)]
    assert worst(torch.cat(parts), whole) < 2e-5


def test_the_model_runs_in_bfloat16_with_float32_logits():
    config = tiny_config()
    runner = make_runner(config, tiny_weights(config), dtype=torch.bfloat16)
    ids = random_ids(140, config.vocab_size, seed=4)
    wide = make_runner(config, tiny_weights(config)).forward_target(make_batch((1, 0, ids))).logits
    output = runner.forward_target(make_batch((1, 0, ids)))
    assert output.streams.dtype == torch.bfloat16 and output.logits.dtype == torch.float32
    assert (output.logits.argmax(1) == wide.argmax(1)).float().mean() > 0.8
    mtp = runner.forward_mtp(make_batch((1, 0, ids)), output.streams)
    assert mtp.streams.dtype == torch.bfloat16 and torch.isfinite(mtp.logits).all()


def test_a_trace_needs_a_whole_prompt():
    runner = golden_runner()
    with pytest.raises(AssertionError, match="whole prompt"):
        runner.trace_target(make_batch((1, 3, random_ids(4, seed=0))))


class UnsummedGroup(TensorParallelGroup):
    """Leaves each rank's share as it is, so that a test can add the shares itself."""

    def all_reduce(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor


def unsummed(rank: int, size: int) -> ExpertGroup:
    """One expert-parallel rank, alone."""
    return ExpertGroup(
        place=Place(rank=rank, sizes=ParallelSizes(tp=size)),
        world=UnsummedGroup(rank=rank, size=size),
        peers=TensorParallelGroup.single(),
    )


@pytest.mark.parametrize("size", [2, 3, 5])
def test_the_ranks_shares_add_up_even_where_a_rank_has_no_expert(size):
    config, weights = load_checkpoint(GOLDEN)
    reader = WeightReader(weights, device=CPU, dtype=torch.float32).below("layers.2.ffn")
    whole, x, ids = experts(2)
    shares = [
        MixtureOfExperts(config, reader, by_token=False, group=unsummed(rank, size))(x, ids, ignore)
        for rank in range(size)
    ]
    without_routed = MixtureOfExperts(config, reader, by_token=False, group=unsummed(8, 9))
    assert len(without_routed._local) == 0
    shared = without_routed(x, ids, ignore)
    assert worst(sum(share - shared for share in shares) + shared, whole(x, ids, ignore)) < 1e-5


class PaddedGroup(UnsummedGroup):
    """Plays the other ranks' part of a gather by repeating this rank's."""

    def all_gather(self, tensor: torch.Tensor, dim: int) -> torch.Tensor:
        return torch.cat([tensor] * self.size, dim)


def test_a_vocabulary_that_does_not_divide_is_padded_and_cut():
    config = tiny_config()
    full = {name: normal(config.vocab_size, config.hidden_size, seed=seed) for seed, name in
            enumerate(("embed.weight", "head.weight"))}  # fmt: skip
    hidden, ids, size = normal(5, config.hidden_size, seed=3), torch.tensor([0, 319, 106, 107, 214]), 3
    assert config.vocab_size % size
    embedded, logits = [], []
    for rank in range(size):
        local = {
            name: shard(tensor, Split.VOCABULARY, Place(rank=rank, sizes=ParallelSizes(tp=size)))
            for name, tensor in full.items()
        }
        reader = WeightReader(local, device=CPU, dtype=torch.float32)
        vocabulary = Vocabulary(config, reader, PaddedGroup(rank=rank, size=size))
        embedded.append(vocabulary.embed(ids))
        rows = len(local["head.weight"])
        logits.append(vocabulary.logits(hidden)[:, :rows])
        assert vocabulary.logits(hidden).shape == (5, config.vocab_size)
    assert torch.equal(sum(embedded), full["embed.weight"][ids])
    assert worst(torch.cat(logits, 1)[:, : config.vocab_size], hidden @ full["head.weight"].T) < 1e-4
