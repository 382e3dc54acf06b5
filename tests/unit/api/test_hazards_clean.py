"""Nothing is reported on the clean engine, whichever of its syncs are there."""

from __future__ import annotations

import pytest

from hazard_programs import watched_engine


@pytest.mark.parametrize(
    "changes",
    [
        {"requests": 3},
        {"plan_on": "host", "overlap": False, "exact_num_tokens": True},
        {"num_drafts": 3, "exact_num_tokens": True, "mixed": True},
        {"num_drafts": 3, "graphs": True, "plan_on": "host"},
    ],
    ids=["accidental syncs", "host plans", "three drafts, mixed", "graphs"],
)
def test_the_clean_engine_has_none(changes):
    watch, failure = watched_engine(8, **changes)
    assert not failure and not watch.hazards()


def test_the_clean_engine_has_none_over_100_steps():
    watch, failure = watched_engine(100, exact_num_tokens=True, num_drafts=0, requests=3, max_new_tokens=100)
    assert not failure and not watch.hazards()
    assert watch.log().steps >= 100


@pytest.mark.slow
@pytest.mark.parametrize("plan_on", ["device", "host"])
def test_the_clean_engine_has_none_over_1000_steps(plan_on):
    overlap = plan_on == "device"
    watch, failure = watched_engine(1000, plan_on=plan_on, overlap=overlap, exact_num_tokens=True, requests=4)
    assert not failure and not watch.hazards()
    log = watch.log()
    assert log.steps >= 1000 and not log.lost
