"""What each part of the loss teaches, and what it leaves alone."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from dsv4_engine.model.hyper_connections import sinkhorn
from dsv4_engine.training import functions
from dsv4_engine.training.layers import Gate
from dsv4_engine.training.options import Stage, TrainingOptions
from dsv4_engine.training.trainees import Dsv4Trainee

SPARSE = Stage(sparse=True, drafts=3, quantised=False)


@pytest.fixture
def ids() -> torch.Tensor:
    return torch.randint(2, 250, (2, 257), generator=torch.Generator().manual_seed(3))


def touched(model, loss: torch.Tensor) -> set[str]:
    """Names of parameters that a loss moves."""
    model.zero_grad(set_to_none=True)
    loss.backward()
    return {name for name, each in model.named_parameters() if each.grad is not None and each.grad.abs().max() > 0}


def test_the_indexers_learn_from_their_own_loss_and_it_moves_nothing_else(model, ids):
    target = model(ids[:, :-1])
    by_index = touched(model, target.index_loss)
    assert by_index and all(".indexer." in name for name in by_index)
    model_loss = F.cross_entropy(model(ids[:, :-1]).logits.flatten(0, 1), ids[:, 1:].flatten())
    assert not any(".indexer." in name for name in touched(model, model_loss))


def test_every_parameter_learns_from_the_whole_loss(model, ids):
    loss = Dsv4Trainee(model, TrainingOptions()).losses(ids, SPARSE)["loss"]
    left = {name for name, _ in model.named_parameters()} - touched(model, loss)
    assert not left


def test_drafts_are_taught_the_model_s_own_distribution():
    own = torch.tensor([[2.0, 0.0, -1.0]], requires_grad=True)
    draft = torch.tensor([[0.0, 1.0, 0.0]], requires_grad=True)
    loss = functions.soft_cross_entropy(draft, own).sum()
    expected = -(F.softmax(own, -1) * F.log_softmax(draft, -1)).sum()
    assert torch.allclose(loss, expected)
    loss.backward()
    assert own.grad is None or own.grad.abs().max() == 0
    assert torch.allclose(draft.grad, F.softmax(draft.detach(), -1) - F.softmax(own.detach(), -1), atol=1e-6)


def test_a_step_counts_only_rows_whose_chain_lies_in_the_text(model, ids, monkeypatch):
    """Draft k of row p belongs to row p + 1 of the target; the first k - 1 rows have no chain behind them."""
    seen = []

    def spy(logits, target_logits):
        seen.append((len(logits), target_logits))
        return logits.sum(-1) * 0

    monkeypatch.setattr(functions, "soft_cross_entropy", spy)
    trainee = Dsv4Trainee(model, TrainingOptions())
    trainee.losses(ids, SPARSE)
    rows = ids.shape[1] - 1
    assert [length for length, _ in seen] == [2 * (rows - 1 - k) for k in range(3)]
    with torch.no_grad():
        logits = model(ids[:, :-1]).logits
    for k, (_, target_logits) in enumerate(seen):
        assert torch.equal(target_logits.detach(), logits[:, k + 1 :].flatten(0, 1))


def test_accept_length_is_one_and_the_drafts_that_agree_in_a_row(model, ids):
    figures = Dsv4Trainee(model, TrainingOptions()).evaluate(ids, SPARSE)
    with torch.no_grad():
        target = model(ids[:, :-1])
        drafts = model.drafts(target.streams, ids[:, 1:], count=3)
    choice = target.logits.argmax(-1)
    lengths = []
    for row in range(len(ids)):
        for start in range(choice.shape[1] - 3):
            length = 1
            for k, logits in enumerate(drafts.logits):
                if logits[row, start + k].argmax() != choice[row, start + k + 1]:
                    break
                length += 1
            lengths.append(length)
    assert float(figures["accept_length"]) == pytest.approx(sum(lengths) / len(lengths), abs=1e-5)


def test_biases_move_towards_even_loads(model, ids):
    trainee = Dsv4Trainee(model, TrainingOptions())
    gates = [module for module in model.modules() if isinstance(module, Gate) and hasattr(module, "bias")]
    before = [gate.bias.clone() for gate in gates]
    trainee.losses(ids, SPARSE)
    loads = list(trainee._loads)
    trainee.steer(0.01)
    trainee.adjust()
    assert len(loads) == len(gates) == 4
    for gate, old, load in zip(gates, before, loads, strict=True):
        assert load.mean() == pytest.approx(1.0)
        assert torch.allclose(gate.bias - old, 0.01 * torch.sign(1 - load))


def test_sinkhorn_is_the_engine_s():
    logits = torch.randn(50, 4, 4, generator=torch.Generator().manual_seed(0))
    ours = functions.doubly_stochastic(logits.permute(1, 2, 0), 20, 1e-6)
    assert torch.allclose(ours.permute(2, 0, 1), sinkhorn(logits, 20, 1e-6), atol=1e-6)


@pytest.mark.parametrize("singles", [0, 1, 2])
@pytest.mark.parametrize("entries", [0, 3])
def test_the_joint_softmax_is_one_softmax_over_all_columns(singles, entries):
    window, blocks, heads = 4, 3, 2
    rows = window * blocks
    random = torch.Generator().manual_seed(5)
    local = torch.randn(1, blocks, window, heads, 2 * window, generator=random)
    own = [torch.randn(1, rows, heads, generator=random) for _ in range(singles)]
    far = torch.randn(1, rows, heads, entries, generator=random) if entries else None
    allowed = torch.rand(1, rows, entries, generator=random) > 0.5 if entries else None
    sink = torch.randn(heads, generator=random)
    near, single, distant = functions.joint_softmax(local, own, far, sink, allowed, window=window, scale=0.5)
    for row in range(rows):
        block, place = divmod(row, window)
        for head in range(heads):
            columns, weights = [], []
            for column in range(2 * window):
                back = place + window - column
                if singles <= back < window and (column >= window or block > 0):
                    columns.append(local[0, block, place, head, column])
                    weights.append(near[0, block, place, head, column])
                else:
                    assert near[0, block, place, head, column] == 0
            for m in range(singles):
                if row >= m:
                    columns.append(own[m][0, row, head])
                    weights.append(single[m][0, row, head])
            for entry in range(entries):
                if allowed[0, row, entry]:
                    columns.append(far[0, row, head, entry])
                    weights.append(distant[0, row, head, entry])
                else:
                    assert distant[0, row, head, entry] == 0
            expected = torch.softmax(torch.stack([*(0.5 * each for each in columns), sink[head]]), 0)[:-1]
            assert torch.allclose(torch.stack(weights), expected, atol=1e-6)


def test_divergence_leaves_out_rows_that_have_no_choice():
    weights = torch.tensor([[[0.0, 0.0], [0.3, 0.0], [0.1, 0.3]]])
    scores = torch.tensor([[[5.0, 1.0], [2.0, -1.0], [0.0, -2.0]]], requires_grad=True)
    allowed = torch.tensor([[[False, False], [True, False], [True, True]]])
    loss = functions.restricted_divergence(weights, scores, allowed)
    target = torch.tensor([0.25, 0.75])
    expected = (target * (target.log() - torch.log_softmax(torch.tensor([0.0, -2.0]), -1))).sum()
    assert torch.allclose(loss, expected)
    loss.backward()
    assert scores.grad[0, :2].abs().max() == 0
