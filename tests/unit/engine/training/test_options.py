"""What follows from a run's options."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dsv4_engine.errors import EngineError
from dsv4_engine.training.hash_table import balanced_table
from dsv4_engine.training.options import Pace, RefineOptions, Stage, TrainingOptions


def test_the_rate_rises_holds_and_falls_to_nothing():
    options = TrainingOptions(steps=1000, warmup=100, decay=0.2, learning_rate=1.0)
    assert options.rate(0) == pytest.approx(0.01)
    assert options.rate(99) == options.rate(500) == options.rate(800) == 1.0
    assert options.rate(900) == pytest.approx(0.5)
    assert 0 < options.rate(999) <= 0.01


def test_a_run_that_is_shorter_than_the_warm_up_rises_over_all_of_it():
    options = TrainingOptions(steps=4, warmup=150, decay=0, learning_rate=1.0)
    assert [options.rate(step) for step in range(4)] == [0.25, 0.5, 0.75, 1.0]


def test_stages_begin_where_their_shares_say():
    options = TrainingOptions(steps=100, warmup=10, sparse_from=0.1, chain_from=0.4, quantise_from=0.8)
    assert options.stage(9) == Stage(sparse=False, drafts=1, quantised=False)
    assert options.stage(10) == Stage(sparse=True, drafts=1, quantised=False)
    assert options.stage(40) == Stage(sparse=True, drafts=3, quantised=False)
    assert options.stage(80) == Stage(sparse=True, drafts=3, quantised=True)


@pytest.mark.parametrize(
    "wrong",
    [
        {"steps": 0},
        {"rows": -1},
        {"length": 100},
        {"drafts": 0},
        {"drafts": 8},
        {"decay": -0.1},
        {"decay": 1.1},
        {"chain_from": 2},
        {"quantise_from": -1},
        {"learning_rate": 0},
        {"learning_rate": math.nan},
        {"clip": 0},
        {"draft_weight": -1},
        {"balance": math.inf},
        {"seed": -1},
    ],
)
def test_options_that_cannot_be_meant_are_refused(wrong):
    with pytest.raises(EngineError) as refused:
        TrainingOptions(**wrong)
    ((name, value),) = wrong.items()
    assert refused.value.message == f"{name} is {value}" and refused.value.hint.startswith("choose")


@pytest.mark.parametrize("edge", [{"decay": 0}, {"decay": 1}, {"warmup": 0}, {"warmup": 2601}, {"balance": 0}])
def test_options_at_their_ends_give_rates(edge):
    options = TrainingOptions(**edge)
    rates = [options.rate(step) for step in range(options.steps)]
    assert all(0 < rate <= options.learning_rate for rate in rates)
    assert edge != {"decay": 0} or rates[-1] == options.learning_rate


@pytest.mark.parametrize("wrong", [{"log": 0}, {"evaluate": -1}, {"save": 0}, {"minutes": -1}, {"minutes": math.nan}])
def test_a_pace_that_cannot_be_is_refused(wrong):
    with pytest.raises(EngineError, match=next(iter(wrong))):
        Pace(**wrong)


@pytest.mark.parametrize("wrong", [{"rounds": 0}, {"round_steps": -1}, {"rows": 1}, {"weight": -1}])
def test_a_refinement_that_cannot_be_is_refused(wrong):
    with pytest.raises(EngineError, match=next(iter(wrong))):
        RefineOptions(**wrong)
    assert RefineOptions(rounds=1, round_steps=1).training().steps == 1


@given(st.lists(st.integers(0, 1000), min_size=40, max_size=80), st.integers(2, 8))
def test_hash_layers_share_the_tokens_out(counts, experts):
    chosen = min(2, experts)
    table = balanced_table(np.array(counts), experts=experts, chosen=chosen)
    assert all(len(set(row)) == chosen for row in table.tolist())
    load = np.zeros(experts)
    for count, row in zip(counts, table, strict=True):
        load[row] += max(count, 1)
    assert load.max() - load.min() <= max(1, *counts)
