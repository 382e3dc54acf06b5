"""Known clocks come back, whatever a rank lacks; what the data cannot bear is not told."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from dsv4prof.errors import InputError
from dsv4prof.model.trace import ClockFit
from dsv4prof.trace.clocks import Align, RankCollectives, align, arrows, correct
from dsv4prof.trace.clocks.collect import COLLECTIVE

BASE = 1_767_189_312_000_000_000


def errors(made, alignment) -> tuple[float, float]:
    """The largest error of an offset at the start (us) and of a drift (ppm)."""
    offsets, drifts = [], []
    for fit in alignment.clocks:
        drift = fit.drift_ppm or 0.0
        at_base = fit.offset_ns + drift * 1e-6 * (BASE - alignment.origin_ns)
        offsets.append((at_base - made.offsets[fit.rank]) / 1e3)
        drifts.append(drift - made.drifts[fit.rank] * 1e6)
    return max(map(abs, offsets)), max(map(abs, drifts))


LACKS = {
    "nothing": {},
    "one missing in a rank": {"drop": {2: [7]}},
    "several missing in several ranks": {"drop": {1: [3, 4, 90], 6: [120], 0: [50, 51]}},
    "a rank is cut in the middle": {"keep": {3: slice(0, 97)}},
    "a rank begins later": {"keep": {6: slice(110, None)}},
    "the reference is cut": {"keep": {0: slice(0, 60)}},
    "two ranks barely overlap": {"keep": {1: slice(0, 110), 6: slice(90, None)}},
    "cut and missing": {"keep": {5: slice(20, 120)}, "drop": {5: [70], 0: [9]}},
}


@pytest.mark.parametrize("lack", LACKS)
@pytest.mark.parametrize("kind", ["order", "seq", "repeats"])
@pytest.mark.parametrize("noise_us", [0.0, 1.5])
def test_offset_and_drift_come_back(make_ranks, lack, kind, noise_us):
    period = 20 if kind == "repeats" else 0
    made = make_ranks(seq=kind == "seq", period=period, noise_us=noise_us, seed=len(lack), **LACKS[lack])
    alignment = align(made.ranks, Align.AUTO)
    offset_us, drift_ppm = errors(made, alignment)
    assert offset_us < 1.0
    assert drift_ppm < 1.0
    assert all(fit.residual_ns <= 2000 for fit in alignment.clocks)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(("ranks", "nodes"), [(2, 2), (6, 3), (16, 4), (8, 1)])
def test_any_number_of_ranks_and_nodes(make_ranks, ranks, nodes, seed):
    made = make_ranks(ranks, 300, nodes=nodes, noise_us=1.0, seed=seed)
    offset_us, drift_ppm = errors(made, align(made.ranks, Align.AUTO))
    assert offset_us < 1.0
    assert drift_ppm < 1.0


def test_offset_larger_than_the_time_between_collectives(make_ranks):
    made = make_ranks(gap_us=60.0, count=600, drop={5: [11]}, keep={6: slice(200, 500)}, seed=3)
    gaps = np.diff(made.ranks[0].rows["end"])
    assert max(map(abs, made.offsets)) > 20 * np.median(gaps)
    offset_us, _ = errors(made, align(made.ranks, Align.AUTO))
    assert offset_us < 1.0


def test_two_kinds_whose_order_differs_between_ranks(make_ranks):
    made = make_ranks(count=120)
    rows = made.ranks[4].rows
    rows[["key", "ordinal"]][30:40] = rows[["key", "ordinal"]][30:40][::-1]
    rows["key"][60] = 2 - rows["key"][60]
    assert errors(made, align(made.ranks, Align.AUTO))[0] < 1.0


def test_outliers_move_nothing(make_ranks):
    made = make_ranks(count=200, noise_us=0.5)
    g = np.random.default_rng(5)
    for one in made.ranks:
        wrong = g.choice(200, 30, replace=False)
        one.rows["end"][wrong] += g.integers(0, 300_000, 30)
        one.rows.sort(order="end")
    assert errors(made, align(made.ranks, Align.AUTO))[0] < 1.0


def test_order_of_ranks_does_not_matter(make_ranks):
    made = make_ranks(late_us={5: 500.0})
    forth, back = align(made.ranks, Align.AUTO), align(made.ranks[::-1], Align.AUTO)
    assert forth.clocks == back.clocks[::-1]
    assert forth.stragglers == back.stragglers


def test_ranks_join_through_other_groups(make_ranks):
    """Two groups of four that never meet, and one rank of each in a third group."""
    tensor = make_ranks(8, groups=["t0"] * 4 + ["t1"] * 4, nodes=2)
    alone = align(tensor.ranks, Align.AUTO)
    assert "no collective connects it with rank 0" in alone.clocks[4].reason
    assert alone.clocks[4].offset_ns == 0
    for rank in (0, 4):
        bridge, clock = tensor.ranks[rank], (tensor.offsets[rank], tensor.drifts[rank])
        ends = np.cumsum(np.random.default_rng(9).gamma(4.0, 1e6, 80))
        rows = np.zeros(80, dtype=bridge.rows.dtype)
        rows["end"] = np.rint(ends * (1 + clock[1]) + clock[0]).astype(np.int64) + BASE
        rows["start"], rows["seq"], rows["group"] = rows["end"] - 50_000, -1, 1
        both = np.concatenate([bridge.rows, rows])
        both.sort(order="end")
        tensor.ranks[rank] = type(bridge)(rank, None, bridge.start_ns, bridge.keys, [*bridge.groups, "d"], both)
    offset_us, drift_ppm = errors(tensor, align(tensor.ranks, Align.AUTO))
    assert offset_us < 1.0
    assert drift_ppm < 1.0


def test_worlds_that_name_no_group_stay_apart(make_ranks):
    """Kernels in graphs name no group: two replicas' patterns differ, and only each one's ranks are matched."""
    made = make_ranks(8, groups=["x"] * 4 + ["y"] * 4)
    for one in made.ranks:
        one.groups[0] = ""
    alignment = align(made.ranks, Align.AUTO)
    for group in arrows(made.ranks, alignment):
        assert len({arrival.rank // 4 for arrival in group}) == 1
    assert "no collective connects it with rank 0" in alignment.clocks[5].reason


def test_seq_of_two_worlds_is_not_believed(make_ranks):
    made = make_ranks(8, groups=["x"] * 4 + ["y"] * 4, seq=True)
    for one in made.ranks:
        one.groups[0] = "0[0,1,2,3]"
    for group in arrows(made.ranks, align(made.ranks, Align.AUTO)):
        assert len({arrival.rank // 4 for arrival in group}) == 1


def test_too_few_matches_are_refused_or_told(make_ranks):
    made = make_ranks(4, 60, nodes=2, keep={3: slice(0, 3)})
    fit = align(made.ranks, Align.AUTO).clocks[3]
    assert (fit.offset_ns, fit.drift_ppm, fit.residual_ns) == (0, None, None)
    assert fit.reason.startswith("base times: ")
    with pytest.raises(InputError, match="rank 3 shares 0 collectives") as caught:
        align(made.ranks, Align.COLLECTIVES)
    assert caught.value.hint


def test_drift_is_not_told_when_the_window_is_short(make_ranks):
    made = make_ranks(2, 12, noise_us=1.5, gap_us=200.0)
    fit = align(made.ranks, Align.AUTO).clocks[1]
    assert fit.drift_ppm is None
    assert "drift" in fit.reason
    assert abs(fit.offset_ns - made.offsets[1]) < 3000


def test_noise_that_repeats_nothing_is_not_matched():
    """Two ranks' samples: ends that have nothing to do with each other."""

    def unrelated(seed: int) -> RankCollectives:
        ends = BASE + np.sort(np.random.default_rng(seed).integers(0, 1_000_000_000, 12))
        rows = np.zeros(12, dtype=COLLECTIVE)
        rows["end"], rows["start"], rows["seq"] = ends, ends - 30_000_000, -1
        return RankCollectives(seed % 2, None, BASE, ["k"], [""], rows)

    found = [align([unrelated(2 * seed), unrelated(2 * seed + 1)], Align.AUTO) for seed in range(20)]
    assert sum(any(fit.residual_ns is not None for fit in one.clocks) for one in found) <= 1


def test_half_of_the_collectives_in_common_is_too_little(make_ranks):
    """Each rank shows another half: some agree, and nobody can say that these are the right ones."""
    made = make_ranks(2, 60, drop={0: list(range(0, 60, 3)), 1: list(range(1, 60, 3))})
    assert [fit.residual_ns for fit in align(made.ranks, Align.AUTO).clocks] == [None, None]


def test_base_measures_and_none_leaves_alone(make_ranks):
    made = make_ranks(late_us={5: 600.0})
    base = align(made.ranks, Align.BASE)
    assert {(fit.offset_ns, fit.drift_ppm) for fit in base.clocks} == {(0, None)}
    assert max(fit.residual_ns for fit in base.clocks) > 100_000
    none = align(made.ranks, Align.NONE)
    assert all((fit.offset_ns, fit.residual_ns, fit.matches) == (0, None, 0) for fit in none.clocks)
    assert none.stragglers == []
    assert list(arrows(made.ranks, none)) == []


def test_one_machine_needs_no_fit(make_ranks):
    made = make_ranks(4, nodes=1, noise_us=0.4)
    for one in made.ranks:
        one.rows["end"] -= round(made.offsets[one.rank])
    alignment = align(made.ranks, Align.AUTO)
    assert {fit.offset_ns for fit in alignment.clocks} == {0}
    assert max(fit.residual_ns for fit in alignment.clocks) < 1000


def test_arrows_join_what_ended_together(make_ranks):
    made = make_ranks(4, 100, drop={2: [7]}, keep={3: slice(0, 50)})
    alignment = align(made.ranks, Align.AUTO)
    groups = list(arrows(made.ranks, alignment))
    assert len(groups) == 100
    assert [len(group) for group in groups].count(4) == 49
    for group in groups:
        assert [one.rank for one in group] == sorted(one.rank for one in group)
        assert len({one.ordinal for one in group}) == 1


def test_nothing_and_ranks_without_collectives(make_ranks):
    assert align([], Align.AUTO).clocks == []
    made = make_ranks(2, 40)
    empty = [type(one)(one.rank, None, one.start_ns, [], [], one.rows[:0]) for one in made.ranks]
    assert [fit.matches for fit in align(empty, Align.AUTO).clocks] == [0, 0]


def test_ranks_travel_between_processes(make_ranks):
    one = make_ranks(2, 1000).ranks[1]
    packed = pickle.dumps(one)
    assert len(packed) < 45 * len(one.rows) + 2000
    assert np.array_equal(pickle.loads(packed).rows, one.rows)


def test_correct_is_exact_where_it_can_be_and_monotone():
    times = BASE + np.sort(np.random.default_rng(0).integers(0, 3_600_000_000_000, 5000))
    still = correct(times, ClockFit(1, 5_511_249, None, 0, 9, ""), BASE)
    assert np.array_equal(still, times - 5_511_249)
    fit = ClockFit(1, -250, 20.0, 0, 9, "")
    moved = correct(times, fit, BASE)
    assert moved.dtype == np.int64
    assert np.all(np.diff(moved) >= 0)
    exact = [int(t) + 250 - round((int(t) - BASE) * 20e-6) for t in times[:200]]
    assert np.max(np.abs(moved[:200] - exact)) <= 1
    assert correct(np.array([BASE]), fit, BASE)[0] == BASE + 250
