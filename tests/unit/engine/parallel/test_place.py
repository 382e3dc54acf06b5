"""Which part of a model is whose: sizes that cannot be, blocks and slices of experts, ranks of a replica."""

from __future__ import annotations

import pytest
import torch

from dsv4_engine.checkpoint.load import load_checkpoint
from dsv4_engine.errors import EngineError
from dsv4_engine.parallel.place import ParallelSizes, Place
from engine_batches import GOLDEN


def places(**sizes: int) -> list[Place]:
    shared = ParallelSizes(**sizes)
    return [Place(rank=rank, sizes=shared) for rank in range(shared.world)]


def test_ranks_of_a_replica_lie_together():
    assert [(place.dp_rank, place.tp_rank) for place in places(tp=2, dp=2)] == [(0, 0), (0, 1), (1, 0), (1, 1)]


@pytest.mark.parametrize("sizes", [{"tp": 4}, {"dp": 4}, {"tp": 2, "dp": 2, "ep": 2}, {"tp": 4, "ep": 1}])
@pytest.mark.parametrize("experts", [1, 3, 8, 9])
def test_every_expert_is_held_once_by_the_ranks_of_each_slice(sizes, experts):
    ranks = places(**sizes)
    for part in range(ranks[0].sizes.expert_slices):
        held = [each for place in ranks if place.expert_slice == part for each in place.local_experts(experts)]
        assert held == list(range(experts))


@pytest.mark.parametrize(
    ("sizes", "words"),
    [({"tp": 0}, "tp is 0"), ({"dp": -1}, "dp is -1"), ({"tp": 2, "dp": 2, "ep": 3}, "ep 3 does not divide the 4")],
)
def test_impossible_sizes_are_refused_with_what_works(sizes, words):
    with pytest.raises(EngineError, match=words) as caught:
        ParallelSizes(**sizes)
    assert caught.value.hint


def test_slices_that_do_not_divide_the_experts_hidden_size_are_refused():
    config, _ = load_checkpoint(GOLDEN)
    slices = config.moe_intermediate_size + 1
    with pytest.raises(EngineError, match=f"cannot be cut into {slices} slices"):
        ParallelSizes(dp=slices, ep=1).require_divides(config)


def test_the_slices_of_an_expert_are_the_expert():
    _, whole = load_checkpoint(GOLDEN)
    parts = [load_checkpoint(GOLDEN, place=place)[1] for place in places(tp=2, ep=1)]
    for name, dim in (("w1", 0), ("w3", 0), ("w2", 1)):
        key = f"layers.1.ffn.experts.5.{name}.weight"
        assert torch.equal(torch.cat([weights[key] for weights in parts], dim), whole[key])
    shared = "layers.1.ffn.shared_experts.w1.weight"
    assert all(torch.equal(weights[shared], whole[shared]) for weights in parts)
