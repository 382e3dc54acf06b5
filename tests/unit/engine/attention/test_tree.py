"""Copying all tensors of nested metadata."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch

from dsv4_engine.attention.tree import clone, copy_, fill_, tensors
from dsv4_engine.errors import EngineError
from dsv4_engine.phase import Phase
from engine_batches import golden_runner, make_batch, random_ids


@dataclass(frozen=True)
class Leaf:
    values: torch.Tensor
    width: int = 3


@dataclass(frozen=True)
class Tree:
    number: torch.Tensor
    leaf: Leaf
    by_ratio: dict[int, torch.Tensor]
    steps: tuple[Leaf, ...]
    nothing: torch.Tensor | None = None


def make(value: float = 1.0, width: int = 3) -> Tree:
    return Tree(
        number=torch.full((2,), value, dtype=torch.complex64),
        leaf=Leaf(torch.full((2, width), int(value), dtype=torch.int32), width),
        by_ratio={4: torch.full((1,), value > 1), 128: torch.full((1,), value)},
        steps=(Leaf(torch.full((3,), value)),),
    )


def test_paths_name_every_tensor():
    assert list(tensors(make())) == ["number", "leaf.values", "by_ratio.4", "by_ratio.128", "steps.0.values"]


def test_a_clone_is_equal_and_shares_nothing():
    tree = make()
    copy = clone(tree)
    assert isinstance(copy, Tree) and copy.leaf.width == 3 and copy.nothing is None
    fill_(tree)
    for name, tensor in tensors(copy).items():
        assert torch.equal(tensor, tensors(make())[name])


def test_a_fill_leaves_nothing_usable():
    tree = make()
    fill_(tree)
    assert tree.number.isnan().all() and tree.by_ratio[128].isnan().all() and tree.by_ratio[4].all()
    assert (tree.leaf.values == 1 << 30).all()
    fill_(tree, -7)
    assert (tree.leaf.values == -7).all()


def test_a_copy_replaces_every_value_in_place():
    target, source = make(), make(2.0)
    places = {name: tensor.data_ptr() for name, tensor in tensors(target).items()}
    fill_(target)
    copy_(target, source)
    for name, tensor in tensors(target).items():
        assert torch.equal(tensor, tensors(source)[name]) and tensor.data_ptr() == places[name]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (make(width=4), r"metadata leaf.values is \(2, 4\) int32, and its target \(2, 3\) int32"),
        (replace(make(), leaf=Leaf(make().leaf.values.long())), "is .* int64, and its target"),
        (replace(make(), leaf=Leaf(make().leaf.values, width=9)), "metadata leaf.width is 9, and its target 3"),
        (replace(make(), nothing=torch.zeros(1)), "metadata nothing is"),
        (replace(make(), by_ratio={4: torch.ones(1)}), "only one of two metadata objects has by_ratio.128"),
    ],
)
def test_anything_else_that_differs_is_refused_before_a_value_changes(source, message):
    target = make()
    with pytest.raises(EngineError, match=message):
        copy_(target, source)
    assert torch.equal(target.number, make().number)


@pytest.mark.parametrize(("phase", "rows"), [(Phase.DECODE, 1), (Phase.TARGET_VERIFY, 4), (Phase.DRAFT_EXTEND, 4)])
def test_a_step_copied_into_another_gives_its_logits(phase, rows):
    """What a captured graph does: the pass runs on tensors that it owns, filled from a step prepared later."""
    runner, ids = golden_runner(), random_ids(150, seed=2)
    compress = phase is not Phase.DRAFT_EXTEND
    runner.forward_target(make_batch((1, 0, ids[:127]), (3, 0, ids[:140])))
    later = [(1, 127, ids[:rows]), (3, 140, ids[3 : 3 + rows])]
    captured = clone(runner.prepare(
        make_batch(*((slot, 5, ids[:rows]) for slot in (2, 4)), phase=phase, max_seq_len=300), compress=compress
    ))  # fmt: skip
    fill_(captured)
    step = runner.prepare(make_batch(*later, phase=phase, max_seq_len=300), compress=compress)
    copy_(captured, step)
    if compress:
        pools = [clone(pool) for pool in runner.layer_pools]
        expected = runner.target(step, None).logits
        for pool, before in zip(runner.layer_pools, pools, strict=True):
            copy_(tuple(pool.tensors()), tuple(before.tensors()))
        assert torch.equal(runner.target(captured, None).logits, expected)
    else:
        streams = torch.randn(2 * rows, 4, 128, generator=torch.Generator().manual_seed(1))
        assert torch.equal(runner.mtp(captured, streams, None).logits, runner.mtp(step, streams, None).logits)
