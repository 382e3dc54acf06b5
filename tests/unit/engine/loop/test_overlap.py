"""One step ahead: launched before the one before it is read, and nobody can tell by the answers."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fake_launcher import continuation, mixed
from fake_loop import FakeLoop
from serving import RecordingHooks
from workloads import ARRIVALS, LONG_ARRIVALS, SETTINGS, check_answers, play


def test_the_next_step_is_launched_before_this_one_is_read():
    loop = FakeLoop(overlap=True, drafts=1)
    loop.add([1, 2, 3], 6, stop=frozenset())
    loop.drain()
    log = loop.launcher.log
    assert log[:4] == ["launch 0", "launch 1", "read 0", "launch 2"]
    reads = [entry for entry in log if entry.startswith("read")]
    assert reads == [f"read {index}" for index in range(len(loop.launcher.plans))]
    for index in range(len(reads) - 1):
        assert log.index(f"launch {index + 1}") < log.index(f"read {index}")
        assert f"launch {index + 2}" not in log or log.index(f"read {index}") < log.index(f"launch {index + 2}")


def test_without_overlap_each_step_is_read_before_the_next():
    loop = FakeLoop(overlap=False)
    loop.add([1, 2, 3], 6)
    steps = loop.drain()
    assert loop.launcher.log == [f"{what} {index}" for index in range(steps) for what in ("launch", "read")]


def test_a_request_that_stops_runs_one_more_step_and_one_that_is_full_does_not():
    prompt = [1, 2, 3]
    tokens = continuation(prompt, 5)
    loop = FakeLoop(overlap=True, drafts=0, num_tails=0)
    stopped = loop.add(prompt, 20, stop=frozenset({tokens[1]} - {tokens[0]}) or frozenset({tokens[0]}))
    loop.drain()
    assert len(loop.launcher.plans) == len(stopped.output) + 1
    loop = FakeLoop(overlap=True, drafts=0, num_tails=0)
    full = loop.add(prompt, 5)
    loop.drain()
    assert tuple(full.output) == tokens and len(loop.launcher.plans) == 5


@pytest.mark.parametrize("overlap", [False, True])
def test_as_many_spans_as_steps_and_none_within_another(overlap):
    hooks = RecordingHooks()
    loop = FakeLoop(overlap=overlap, hooks=hooks)
    loop.add([1, 2, 3], 9)
    loop.add([1, 2, 3, 4, 5, 6, 0], 4)
    made = []
    while loop.loop.has_work:
        made.append(loop.step()[0])
    assert [launched.index for launched in made] == list(range(len(made)))
    assert [told["index"] for told in hooks.steps] == list(range(len(made)))
    assert all(path == () for name, path in hooks.entered if name.startswith("step"))
    for launched, told in zip(made, hooks.steps, strict=True):
        assert told == {
            "index": launched.index,
            "kind": launched.plan.kind,
            "requests": len(launched.plan.requests),
            "rows": launched.rows,
        }


def test_before_a_retraction_the_step_in_flight_is_read():
    loop = FakeLoop(overlap=True, max_requests=2, num_pages=8, drafts=0, num_tails=0, chunk_tokens=50)
    requests = [loop.add([number], 24) for number in range(2)]
    drained = []
    while loop.loop.has_work:
        retracted = loop.scheduler.counts.retracted
        in_flight = loop.loop._in_flight
        loop.step()
        if loop.scheduler.counts.retracted > retracted:
            drained.append(in_flight is None)
    assert drained and all(drained)
    assert [tuple(request.output) for request in requests] == [continuation([number], 24) for number in range(2)]


def test_a_withdrawn_request_leaves_its_step_to_be_read():
    loop = FakeLoop(overlap=True)
    request = loop.add([1, 2, 3], 50 - 20)
    loop.step()
    assert loop.scheduler.abort(request)
    assert loop.loop.has_work and not loop.scheduler.has_work
    launched, committed = loop.step()
    assert committed.kept == {} and committed.accept_lens == () and launched.plan.requests == (request,)
    loop.check_all_free()


def outcome_of(requests):
    return {
        index: (request.output, request.accept_lens, request.finish_reason, request.logprobs)
        for index, request in requests.items()
    }


def without_aborts(arrivals):
    return [type(a)(**{**a.__dict__, "abort": None}) for a in arrivals]


@given(st.one_of(*(st.lists(some, min_size=1, max_size=6) for some in (ARRIVALS, LONG_ARRIVALS))), SETTINGS)
@settings(max_examples=80, deadline=None, derandomize=True)
def test_overlap_equals_no_overlap(arrivals, chosen):
    """Tokens and logprobs always; accept lengths too where nothing was retracted, which begins a chain anew."""
    arrivals, outcomes, retracted = without_aborts(arrivals), [], 0
    for overlap in (False, True):
        loop = FakeLoop(**chosen | {"overlap": overlap, "logprobs": True})
        requests = play(loop, arrivals)
        check_answers(requests, arrivals)
        assert all(len(request.logprobs) == len(request.output) for request in requests.values())
        retracted += loop.scheduler.counts.retracted
        outcomes.append(outcome_of(requests))
        loop.check_all_free()
    if not retracted:
        assert outcomes[0] == outcomes[1]


@pytest.mark.parametrize("seed", range(6))
def test_tails_that_could_not_be_reserved_in_time_are_never_believed(seed):
    """Rows for tails are there by chance alone; what output is kept must be what the device has saved."""
    loop = FakeLoop(overlap=True, drafts=3, num_tails=20, num_pages=60, max_requests=2, chunk_tokens=5)
    reserve, asked = loop.holdings._reserve_tail, iter(range(10**6))
    loop.holdings._reserve_tail = lambda holding, boundary: (
        mixed(seed, next(asked)) % 2 == 0 and reserve(holding, boundary)
    )
    requests = [loop.add([1, 2, 3], 30), loop.add([3, 1], 30)]
    loop.drain()
    turns = [loop.add(request.tokens[:length], 5) for request in requests for length in range(5, 30)]
    loop.drain()
    assert any(turn.cached_tokens > 4 for turn in turns)
    assert all(tuple(turn.output) == continuation(turn.prompt, 5) for turn in turns)
