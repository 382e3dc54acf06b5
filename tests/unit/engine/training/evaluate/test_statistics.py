"""Intervals that hold what they promise, for numbers that come in clusters too."""

from __future__ import annotations

import numpy as np
import pytest

from dsv4_engine.training.evaluate.acceptance import drafts_of
from dsv4_engine.training.evaluate.statistics import mean_of, share_of


def test_by_hand():
    mean = mean_of([4.0, 0.0, 2.0], [2, 0, 2])
    # Deviations from 1.5: 1 and -1; variance 2 * 2 / 1 / 16.
    assert (mean.value, mean.samples, mean.clusters) == (1.5, 4, 2)
    assert mean.high - mean.value == pytest.approx(12.7062 * 0.5) == mean.value - mean.low
    share = share_of([3, 3], [10, 10])
    assert (share.value, share.samples, share.clusters) == (0.3, 20, 2)
    assert (share.low, share.high) == pytest.approx((0.14547, 0.51897), abs=1e-4)


def test_nothing_counted_is_nothing_claimed():
    assert mean_of([], []) is None and mean_of([0.0], [0]) is None
    assert share_of([], []) is None and share_of([0, 0], [0, 0]) is None
    alone = mean_of([3.0], [2])
    assert (alone.value, alone.low, alone.high) == (1.5, None, None)
    alone = share_of([3, 1], [10, 6], clusters=["a", "a"])
    assert (alone.value, alone.low, alone.high) == (0.25, None, None), "one document does not tell how others are"


@pytest.mark.parametrize("hits", [0, 20])
def test_shares_of_none_and_all_are_not_certain(hits):
    share = share_of([hits // 2] * 2, [10, 10])
    assert 0.1 < share.high - share.low < 0.2 and share.low >= 0 and share.high <= 1


def test_texts_of_one_document_count_as_one_cluster():
    apart = mean_of([1.0, 2.0, 5.0], [1, 1, 2], clusters=["a", "a", "b"])
    together = mean_of([3.0, 5.0], [2, 2])
    assert apart == together
    assert share_of([1, 0, 1], [2, 1, 1], clusters=["a", "a", "b"]) == share_of([1, 1], [3, 1])


@pytest.mark.parametrize(("freedom", "point"), [(1, 12.7062), (2, 4.3027), (3, 3.1824), (7, 2.3646), (30, 2.0423)])
def test_student_s_points_are_those_of_tables(freedom, point):
    # The half width over the deviation of their mean is the point itself.
    sums = [1.0, -1.0] + [0.0] * (freedom - 1)
    mean = mean_of(sums, [1] * (freedom + 1))
    deviation = np.std(sums, ddof=1) / np.sqrt(freedom + 1)
    assert mean.high / deviation == pytest.approx(point, rel=2e-3)


@pytest.mark.parametrize(("clusters", "least"), [(3, 0.86), (30, 0.91)])  # with 3, the normal point gives 0.81
@pytest.mark.parametrize("spread", [0.0, 0.2])
def test_intervals_cover_the_truth_as_often_as_they_say(spread, clusters, least):
    # Clusters with a rate of their own: an interval that took trials as independent would be far too narrow, and so
    # would one that took what three clusters tell of their spread for certain.
    random, covered = np.random.default_rng(5), [0, 0]
    for _ in range(400):
        rates = 0.5 + spread * random.uniform(-2, 2, clusters)
        trials = random.integers(15, 40, clusters)
        hits = random.binomial(trials, rates)
        share, mean = share_of(hits.tolist(), trials.tolist()), mean_of(hits.tolist(), trials.tolist())
        covered[0] += share.low <= 0.5 <= share.high
        covered[1] += mean.low <= 0.5 <= mean.high
    assert all(least < each / 400 < 0.99 for each in covered), covered


def test_accept_lengths_by_hand():
    drafts = drafts_of([[1, 4, 2], [], [3, 1]], num_drafts=3)
    assert drafts.length.value == 11 / 5 and drafts.lengths == (2, 1, 1, 1)
    assert [each.value for each in drafts.accepted] == [3 / 5, 2 / 5, 1 / 5]
    assert [each.value for each in drafts.given_previous] == [3 / 5, 2 / 3, 1 / 2]
    assert [each.samples for each in drafts.given_previous] == [5, 3, 2]
    assert drafts.length.value == 1 + sum(each.value for each in drafts.accepted)
    never = drafts_of([[1, 1]], num_drafts=2)
    assert [each.value for each in never.accepted] == [0, 0] and never.given_previous[1] is None
    assert drafts_of([[]], num_drafts=3) is None
