"""Whatever is scheduled, each request's answer is its own: random workloads on the loop without a model."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from fake_loop import FakeLoop
from workloads import ARRIVALS, LONG_ARRIVALS, SETTINGS, check_answers, play


@given(st.lists(ARRIVALS, min_size=1, max_size=7), SETTINGS)
@settings(max_examples=120, deadline=None, derandomize=True)
def test_every_request_gets_its_own_tokens(arrivals, chosen):
    engine = FakeLoop(**chosen)
    check_answers(play(engine, arrivals), arrivals)
    engine.check_all_free()


@given(st.lists(LONG_ARRIVALS, min_size=2, max_size=6), SETTINGS, st.integers(9, 12))
@settings(max_examples=80, deadline=None, derandomize=True)
def test_retraction_mid_stream_equals_an_uninterrupted_run(arrivals, chosen, pages):
    engine = FakeLoop(**chosen | {"max_requests": 4, "num_pages": pages})
    requests = play(engine, arrivals)
    check_answers(requests, arrivals)
    engine.check_all_free()


def test_that_workload_does_retract():
    """Otherwise the test above would say nothing."""
    loop = FakeLoop(max_requests=4, num_pages=10, chunk_tokens=7)
    for number in range(4):
        loop.add([number], 26)
    loop.drain()
    assert loop.scheduler.counts.retracted >= 2
