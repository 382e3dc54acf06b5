"""Only steps of the same work are compared."""

from __future__ import annotations

import pytest

from dsv4prof.recorder.overhead import StepTiming, measure_overhead


def timings(profiled: dict[str, list[int]], plain: dict[str, list[int]]) -> list[StepTiming]:
    return [StepTiming(key, ns, True) for key, values in profiled.items() for ns in values] + [
        StepTiming(key, ns, False) for key, values in plain.items() for ns in values
    ]


def test_steps_are_paired_by_key_and_one_stray_step_decides_nothing() -> None:
    overhead = measure_overhead(
        timings({"a": [110], "b": [220], "c": [9000], "d": [1]}, {"a": [100], "b": [200], "c": [300], "e": [7]})
    )
    assert overhead.ratio == pytest.approx(1.1)
    assert (overhead.profiled_ns, overhead.unprofiled_ns) == (9330, 600)
    assert (overhead.profiled_steps, overhead.unprofiled_steps) == (4, 4)
    assert overhead.reason.startswith("3 of 4 profiled steps matched")


def test_several_unprofiled_steps_of_a_key_count_by_their_median() -> None:
    assert measure_overhead(timings({"a": [120]}, {"a": [100, 100, 5000]})).ratio == pytest.approx(1.2)


def test_the_quartiles_say_how_far_the_pairs_lie_apart() -> None:
    durations = [100, 110, 120, 130, 900]
    overhead = measure_overhead(timings({"a": durations, "b": [5]}, {"a": [100]}))
    assert (overhead.matched, overhead.profiled_steps) == (5, 6)
    assert (overhead.ratio_low, overhead.ratio, overhead.ratio_high) == pytest.approx((1.1, 1.2, 1.3))
    one = measure_overhead(timings({"a": [120]}, {"a": [100]}))
    assert (one.matched, one.ratio_low, one.ratio_high) == (1, one.ratio, one.ratio)


@pytest.mark.parametrize(
    ("profiled", "plain", "words"),
    [
        ({}, {"a": [1]}, "no step was profiled"),
        ({"a": [1]}, {}, "no unprofiled step"),
        ({"a": [1]}, {"b": [1]}, "none of 1 profiled steps"),
    ],
)
def test_without_a_match_there_is_no_ratio_but_a_reason(
    profiled: dict[str, list[int]], plain: dict[str, list[int]], words: str
) -> None:
    overhead = measure_overhead(timings(profiled, plain))
    assert overhead.ratio is None
    assert words in overhead.reason
    assert overhead.profiled_ns == 0
    assert (overhead.matched, overhead.ratio_low, overhead.ratio_high) == (0, None, None)
