"""The trainable model computes what reference implementations and the serving engine compute."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from dsv4_engine.checkpoint.load import load_checkpoint
from dsv4_engine.checkpoint.tiny import tiny_weights
from dsv4_engine.training.model import TrainableModel
from dsv4_engine.training.names import official_tensors
from engine_training_model import with_weights

GOLDEN = Path(__file__).parents[3] / "golden" / "dsv4_tiny"
BOUND = 2e-5
STEP = 128


@pytest.fixture(scope="module")
def golden() -> dict[str, torch.Tensor]:
    return load_file(GOLDEN / "golden.safetensors")


@pytest.fixture(scope="module")
def golden_model() -> TrainableModel:
    return with_weights(*load_checkpoint(GOLDEN))


def padded(ids: torch.Tensor) -> torch.Tensor:
    """A whole number of windows; what comes behind a row cannot change it."""
    return torch.cat((ids, ids.new_full((-len(ids) % STEP,), 7)))[None].long()


@pytest.mark.parametrize("length", [1, 3, 31, 33, 65, 127, 129, 255, 257, 300])
def test_logits_of_target_and_first_draft_are_the_reference_s(golden, golden_model, length):
    ids = golden[f"p{length}.input_ids"].flatten()
    following = torch.cat((ids[1:], golden[f"p{length}.greedy"][:1]))
    with torch.no_grad():
        target = golden_model(padded(ids))
        drafts = golden_model.drafts(target.streams, padded(following), count=1)
    assert (target.logits[0, :length] - golden[f"p{length}.logits"]).abs().max() < BOUND
    assert (drafts.logits[0][0, :length] - golden[f"p{length}.mtp_logits"]).abs().max() < BOUND


@pytest.mark.parametrize("length", [9, 31, 63, 64, 127, 128, 200])
def test_a_chain_of_right_drafts_is_the_reference_s_chain(golden, golden_model, length):
    chain = golden[f"p{length}.mtp_chain"].flatten()
    ids = torch.cat(
        (golden[f"p{length}.input_ids"].flatten(), golden[f"p{length}.greedy"][:1], chain[:2].to(torch.int64))
    )
    following = torch.cat((ids[1:], chain[2:3]))
    with torch.no_grad():
        target = golden_model(padded(ids))
        drafts = golden_model.drafts(target.streams, padded(following), count=3)
    for draft, logits in enumerate(drafts.logits):
        row = length - 1 + draft
        difference = (logits[0, row] - golden[f"p{length}.mtp_chain_logits"][draft]).abs().max()
        assert difference < BOUND, f"draft {draft + 1}"


def test_later_tokens_change_no_earlier_row(model):
    ids = torch.randint(2, 250, (1, 256), generator=torch.Generator().manual_seed(1))
    changed = ids.clone()
    changed[0, 200:] = 9
    with torch.no_grad():
        before, after = model(ids), model(changed)
        drafts = [model.drafts(each.streams, row, count=3) for each, row in ((before, ids), (after, changed))]
    assert torch.equal(before.logits[0, :200], after.logits[0, :200])
    assert not torch.equal(before.logits[0, 200:], after.logits[0, 200:])
    for first, second in zip(*(each.logits for each in drafts), strict=True):
        assert torch.equal(first[0, :200], second[0, :200])


def test_names_go_to_a_checkpoint_and_back(config, model):
    weights = tiny_weights(config)
    tensors = official_tensors(model.state_dict())
    assert tensors.keys() == weights.keys()
    for name, tensor in tensors.items():
        assert torch.equal(tensor, weights[name]), name


def test_dense_attention_of_short_texts_is_sparse_attention(config, model):
    """With fewer entries than the indexer may choose, both are the same; with more they are not."""
    ids = torch.randint(2, 250, (1, 128), generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        sparse, dense = model(ids), model(ids, sparse=False)
    few = config.index_topk * 4
    assert torch.equal(sparse.logits[0, : few - 1], dense.logits[0, : few - 1])
    assert not torch.allclose(sparse.logits[0, few + 8 :], dense.logits[0, few + 8 :])
