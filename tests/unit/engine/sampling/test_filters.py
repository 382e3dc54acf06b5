"""top-k, top-p and min-p against their definitions, token by token."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dsv4_engine.sampling.filters import filter_logits


def kept_by_definition(logits: list[float], top_k: int, top_p: float, min_p: float) -> set[int]:
    order = sorted(range(len(logits)), key=lambda token: (-logits[token], token))
    left = order[: min(top_k, len(order))]
    weights = [math.exp(logits[token] - logits[left[0]]) for token in left]
    probs = [weight / math.fsum(weights) for weight in weights]
    kept, reached = [], 0.0
    for token, prob in zip(left, probs, strict=True):
        if top_p < 1 and reached >= top_p:
            break
        kept.append(token)
        reached += prob
    return {token for token, prob in zip(kept, probs, strict=False) if prob >= min_p * probs[0]} | {order[0]}


def kept(logits: list[list[float]], top_k: list[int], top_p: list[float], min_p: list[float]) -> list[set[int]]:
    rows = torch.tensor(logits, dtype=torch.float64)
    filtered = filter_logits(
        rows,
        torch.tensor(top_k),
        torch.tensor(top_p, dtype=torch.float64),
        torch.tensor(min_p, dtype=torch.float64),
    )
    assert torch.equal(filtered[filtered.isfinite()], rows[filtered.isfinite()]), "kept logits are unchanged"
    return [{token for token, value in enumerate(row) if value != -math.inf} for row in filtered.tolist()]


ROWS = st.lists(st.lists(st.integers(-12, 12), min_size=7, max_size=7), min_size=1, max_size=4)


@settings(max_examples=60, deadline=None, derandomize=True)
@given(ROWS, st.integers(1, 9), st.sampled_from([0.01, 0.3, 0.55, 0.9, 0.999, 1.0]), st.sampled_from([0, 0.07, 0.4, 1]))
def test_equals_the_definition(rows, top_k, top_p, min_p):
    logits = [[value / 3 for value in row] for row in rows]
    count = len(rows)
    expected = [kept_by_definition(row, top_k, top_p, min_p) for row in logits]
    assert kept(logits, [top_k] * count, [top_p] * count, [min_p] * count) == expected


def test_each_row_has_its_own_limits():
    row = [3.0, 2.0, 1.0, 0.0]
    assert kept([row] * 4, [1, 4, 4, 4], [1, 1, 0.5, 1], [0, 0, 0, 0.2]) == [{0}, {0, 1, 2, 3}, {0}, {0, 1}]


def test_equal_logits_are_cut_by_id():
    assert kept([[1.0, 1.0, 1.0, 1.0]], [2], [1.0], [0.0]) == [{0, 1}]


def test_top_p_works_on_what_top_k_left():
    row = [math.log(share) for share in (0.4, 0.3, 0.2, 0.1)]
    # Of the first two, renormalised, the first has 4/7: a share of 0.5 is reached by it alone.
    assert kept([row, row], [2, 4], [0.5, 0.5], [0, 0]) == [{0}, {0, 1}]


@pytest.mark.parametrize("top_p", [1.0, 1 - 1e-15])
def test_a_share_of_one_drops_nothing_by_rounding(top_p):
    logits = [[0.0] + [-30.0] * 2000]
    if top_p == 1.0:
        assert len(kept(logits, [2001], [top_p], [0.0])[0]) == 2001
    else:
        assert 0 in kept(logits, [2001], [top_p], [0.0])[0]
