"""The rank that others wait for is named; chance, one long wait and noise name nobody."""

from __future__ import annotations

import numpy as np
import pytest

from dsv4prof.trace.clocks import Align, align


def named(made) -> list[int]:
    return [one.rank for one in align(made.ranks, Align.AUTO).stragglers]


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    "lack", [{}, {"drop": {2: [7]}}, {"keep": {3: slice(0, 100)}}, {"keep": {5: slice(0, 90)}}, {"noise_us": 1.5}]
)
def test_the_known_straggler_and_no_other(make_ranks, seed, lack):
    made = make_ranks(late_us={5: 600.0}, seed=seed, **lack)
    found = align(made.ranks, Align.AUTO).stragglers
    assert [one.rank for one in found] == [5]
    assert found[0].collectives >= 70
    assert 0.1 < found[0].share < 0.4
    assert 300_000 < found[0].late_ns / found[0].collectives < 700_000
    assert "rank 5 was the last to reach" in found[0].evidence


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_none_is_named_when_all_come_alike(make_ranks, seed, ranks):
    assert named(make_ranks(ranks, 150, seed=seed)) == []


@pytest.mark.parametrize("seed", range(10))
def test_none_is_named_when_each_rank_is_a_little_late_in_its_own_way(make_ranks, seed):
    late = dict(enumerate(np.random.default_rng(seed).uniform(0, 60, 8)))
    assert named(make_ranks(8, 150, gap_us=6000.0, late_us=late, seed=seed)) == []


def test_one_long_wait_names_nobody(make_ranks):
    made = make_ranks(4, 100, nodes=1)
    for one in made.ranks:
        one.rows["start"][10] -= 0 if one.rank == 2 else 2_000_000_000
    assert named(made) == []


def test_a_straggler_is_seen_behind_anothers_long_wait(make_ranks):
    made = make_ranks(4, 100, nodes=1, late_us={1: 500.0})
    for one in made.ranks:
        one.rows["start"][10] -= 0 if one.rank == 2 else 2_000_000_000
    assert named(made) == [1]


def test_one_straggler_in_each_group_that_has_one(make_ranks):
    made = make_ranks(8, groups=["t0"] * 4 + ["t1"] * 4, late_us={6: 600.0})
    assert named(made) == [6]


def test_clocks_are_corrected_before_arrivals_are_compared(make_ranks):
    """By the files' own times the ranks of the other machine would come last every time, or never."""
    made = make_ranks(8, late_us={2: 400.0}, seed=4)
    assert max(map(abs, made.offsets)) > 1e6
    assert named(made) == [2]


def test_few_collectives_name_nobody(make_ranks):
    assert named(make_ranks(8, 8, late_us={5: 600.0})) == []


def test_late_for_half_of_the_time_is_no_straggler(make_ranks):
    made = make_ranks(8, 200, late_us={5: 600.0}, seed=2)
    calm = make_ranks(8, 200, seed=2).ranks[4].rows["start"] - make_ranks(8, 200, seed=2).ranks[4].rows["end"]
    second_half = slice(110, None)
    made.ranks[5].rows["start"][second_half] = (made.ranks[5].rows["end"] + calm)[second_half]
    assert named(made) == []


def test_the_last_of_ranks_that_all_differ_is_no_straggler(make_ranks):
    """Its lead costs time, but is small beside what lies between the others."""
    late = {0: 200.0, 1: 170.0, 2: 100.0, 3: 60.0}
    assert named(make_ranks(8, 200, gap_us=300.0, late_us=late, seed=1)) == []
