"""Who is computed when: admission, priorities, pages, retraction and withdrawal, on the loop without a model."""

from __future__ import annotations

import pytest

from dsv4_engine.errors import EngineError
from dsv4_engine.request import FinishReason
from dsv4_engine.scheduler.queue import WaitingQueue
from fake_launcher import continuation
from fake_loop import FakeLoop


def prompts_of(loop: FakeLoop) -> list[list[int]]:
    """Ids of the chunks of each step that has any."""
    return [[chunk.request.id for chunk in plan.chunks] for plan in loop.launcher.plans if plan.chunks]


def test_higher_priorities_are_admitted_first_and_equal_ones_in_order():
    loop = FakeLoop(max_requests=1, chunk_tokens=50)
    for priority in (0, 1, -1, 1, 0):
        loop.add([1, 2], 2, priority=priority)
    loop.drain()
    assert prompts_of(loop) == [[1], [3], [0], [4], [2]]


def test_a_later_request_does_not_overtake_one_that_does_not_fit():
    loop = FakeLoop(max_requests=3, num_pages=6, drafts=0, chunk_tokens=50)
    loop.add([1] * 12, 8)  # 5 pages at its end
    loop.step()
    loop.add([2] * 12, 2)
    loop.add([3], 1)
    loop.drain()
    assert prompts_of(loop) == [[0], [1, 2]]
    assert loop.scheduler.counts.retracted == 0


def test_admission_leaves_a_page_to_each_request_that_may_need_one():
    loop = FakeLoop(max_requests=4, num_pages=8, drafts=0, chunk_tokens=50)
    for number in range(4):
        loop.add([number] * 4, 8)  # a page now, three at the end
    loop.step()
    assert prompts_of(loop) == [[0, 1, 2, 3]], "4 pages taken, and one kept for each"
    loop = FakeLoop(max_requests=4, num_pages=7, drafts=0, chunk_tokens=50)
    for number in range(4):
        loop.add([number] * 4, 8)
    loop.step()
    assert prompts_of(loop) == [[0, 1, 2]]


@pytest.mark.parametrize(("output", "fits"), [(13, True), (14, False)])
def test_a_request_that_could_never_fit_is_refused(output, fits):
    loop = FakeLoop(num_pages=4, drafts=2)  # 16 positions; the last step's window ends at prompt + output + 1
    if fits:
        request = loop.add([1, 2], output)
        loop.drain()
        assert len(request.output) == output
        return
    with pytest.raises(EngineError, match="5 pages of 4 tokens, and the caches have 4") as caught:
        loop.add([1, 2], output)
    assert caught.value.hint and not loop.loop.has_work


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("mixed", [False, True])
def test_when_pages_run_out_the_lowest_priority_then_the_newest_gives_way(overlap, mixed):
    loop = FakeLoop(max_requests=3, num_pages=9, drafts=0, chunk_tokens=50, num_tails=0, overlap=overlap, mixed=mixed)
    requests = [loop.add([number], 24, priority=priority) for number, priority in enumerate((0, 1, 0))]
    gave_way = []
    while loop.loop.has_work:
        before = [request.slot for request in requests]
        loop.step()
        gave_way += [
            request.id
            for request, slot in zip(requests, before, strict=True)
            if slot is not None and request.slot is None and request.finish_reason is None
        ]
    assert gave_way[:2] == [2, 0] and loop.scheduler.counts.retracted == len(gave_way)
    assert [tuple(r.output) for r in requests] == [continuation([number], 24) for number in range(3)]
    loop.check_all_free()


def test_kept_prefixes_go_before_any_request_does():
    loop = FakeLoop(max_requests=2, num_pages=8, drafts=0, num_tails=8, chunk_tokens=50)
    loop.add([5] * 12, 4)
    loop.drain()
    assert loop.holdings.pages.num_cached == 3
    loop.add([6], 30)
    loop.drain()
    assert loop.scheduler.counts.retracted == 0
    assert loop.holdings.tree.match([5] * 13) is loop.holdings.tree.root


def test_a_retracted_request_continues_from_what_the_tree_still_has():
    loop = FakeLoop(max_requests=2, num_pages=10, drafts=0, num_tails=10, chunk_tokens=50)
    first, second = loop.add([1], 30), loop.add([2], 30)
    loop.drain()
    assert loop.scheduler.counts.retracted >= 1
    again = [plan for plan in loop.launcher.plans if plan.tail_loads]
    assert again and all(load.boundary % 4 == 0 for plan in again for load in plan.tail_loads)
    assert (tuple(first.output), tuple(second.output)) == (continuation([1], 30), continuation([2], 30))
    assert first.cached_tokens == second.cached_tokens == 0, "a second admission is no cached prompt"


@pytest.mark.parametrize("overlap", [False, True])
@pytest.mark.parametrize("steps", range(9))
def test_a_request_can_be_withdrawn_in_every_state(overlap, steps):
    loop = FakeLoop(max_requests=2, drafts=2, chunk_tokens=3, overlap=overlap, num_pages=20)
    kept = loop.add([4, 4, 4, 4], 9)
    gone = loop.add([1, 2, 3, 4, 5, 6, 0], 9)
    waiting = loop.add([1, 1], 3)
    for _ in range(steps):
        loop.step()
    alive = gone.finish_reason is None
    assert loop.scheduler.abort(gone) is alive and loop.scheduler.abort(gone) is False
    loop.check()
    loop.drain()
    expected = continuation(gone.prompt, 9)
    assert tuple(gone.output) == expected[: len(gone.output)]
    assert gone.finish_reason is (FinishReason.ABORT if alive else FinishReason.LENGTH)
    assert tuple(kept.output) == continuation(kept.prompt, 9) and len(waiting.output) == 3
    loop.check_all_free()


def test_a_withdrawn_waiting_request_is_never_computed():
    loop = FakeLoop(max_requests=1)
    loop.add([1], 2)
    gone = loop.add([2], 2)
    assert loop.scheduler.abort(gone) and gone.finish_reason is FinishReason.ABORT
    loop.drain()
    assert all(request is not gone for plan in loop.launcher.plans for request in plan.requests)


def test_one_by_one_equals_batched_equals_mixed():
    prompts = [[1, 2, 3, 4, 5, 6, 0, 1], [1, 2, 3, 4, 5, 6, 0, 2], [3], [1, 2, 3]]
    outcomes = []
    for options in ({"max_requests": 1}, {"max_requests": 4}, {"max_requests": 4, "mixed": True}):
        loop = FakeLoop(num_pages=40, drafts=3, num_tails=0, **options)
        requests = [loop.add(prompt, 12) for prompt in prompts]
        loop.drain()
        outcomes.append([(request.output, request.accept_lens) for request in requests])
    assert outcomes[0] == outcomes[1] == outcomes[2]


def test_a_mixed_step_has_chunks_and_running_requests_and_keeps_to_the_budget():
    loop = FakeLoop(max_requests=3, drafts=1, chunk_tokens=6, mixed=True, num_pages=20)
    loop.add([1, 2], 20)
    loop.step()
    loop.add([5] * 11, 2)
    plan = loop.step()[0].plan
    assert plan.kind == "mixed" and [chunk.length for chunk in plan.chunks] == [4]
    assert [running.request.id for running in plan.running] == [0]


def test_a_kind_can_be_asked_for():
    loop = FakeLoop(max_requests=2, num_pages=20)
    assert not loop.scheduler.could_prefill
    loop.add([1, 2], 9)
    assert loop.scheduler.could_prefill
    assert loop.scheduler.plan(kind="decode") is None
    loop.step()
    assert not loop.scheduler.could_prefill and loop.scheduler.plan(kind="prefill") is None
    loop.add([1, 2], 9)
    decode = loop.scheduler.plan(kind="decode")
    assert decode is not None and decode.kind == "decode" and len(decode.running) == 1


def test_a_prefix_is_computed_once():
    loop = FakeLoop(max_requests=1, num_pages=30, chunk_tokens=50)
    prompt = [1, 2, 3, 4, 5, 6, 0, 1, 2]
    first = loop.add(prompt, 1)
    loop.drain()
    computed = loop.launcher.computed
    second = loop.add(prompt, 1)
    loop.drain()
    assert (first.cached_tokens, second.cached_tokens) == (0, 8)
    assert loop.launcher.computed - computed == 1 and first.output == second.output
    assert (loop.scheduler.counts.prompt_tokens, loop.scheduler.counts.cached_tokens) == (18, 8)


def test_output_can_be_continued_from():
    loop = FakeLoop(max_requests=1, num_pages=30, drafts=2, chunk_tokens=50)
    request = loop.add([1, 2, 3], 14)
    loop.drain()
    turn = loop.add([*request.tokens, 5], 3)
    loop.drain()
    assert turn.cached_tokens == 16 and tuple(turn.output) == continuation(turn.prompt, 3)


def test_two_that_compute_the_same_at_once_share_pages_afterwards():
    loop = FakeLoop(max_requests=2, num_pages=30, chunk_tokens=50)
    for _ in range(2):
        loop.add([1, 2, 3, 4, 5, 6, 0, 1, 2], 8)
    loop.step()
    assert (loop.holdings.pages.num_cached, loop.holdings.pages.num_owned) == (2, 2)
    tables = [holding.pages[:2] for holding in loop.scheduler._decoding.values()]
    assert tables[0] == tables[1]
    loop.drain()


def test_counts_by_position():
    loop = FakeLoop(max_requests=2, drafts=3, num_pages=30)
    requests = [loop.add([1, 2, 3], 17), loop.add([2, 2], 17)]
    loop.drain()
    gained = [length for request in requests for length in request.accept_lens]
    stats = loop.scheduler.stats(steps=loop.loop.steps)
    assert (stats.verifies, stats.accepted) == (len(gained), sum(gained))
    assert stats.accepted_at == tuple(sum(length > position for length in gained) for position in (1, 2, 3))
    assert stats.accept_length == sum(gained) / len(gained)
    assert (stats.finished, stats.output_tokens, stats.steps) == (2, 34, len(loop.launcher.plans))
    assert FakeLoop().scheduler.stats(steps=0).accept_length is None


def test_the_queue_forgets_who_is_withdrawn():
    loop, queue = FakeLoop(), WaitingQueue()
    requests = [loop.add([1], 1) for _ in range(100)]
    for request in requests:
        queue.push(request)
    for request in requests[:-1]:
        queue.remove(request)
    assert len(queue) == 1 and queue.first() is requests[-1] and len(queue._heap) < 50
    assert queue.pop() is requests[-1] and queue.first() is None


def test_a_boundary_that_a_step_in_flight_may_have_passed_is_not_begun_to_be_saved():
    """The device would not save it, and the host would believe that it had."""
    loop = FakeLoop(num_tails=8, drafts=2)
    loop.add([1, 2], 20)
    loop.step()
    [holding] = loop.scheduler._decoding.values()
    holdings, boundaries = loop.holdings, []
    for low, high, written in ((2, 9, 5), (2, 9, 5), (3, 12, 9), (4, 12, 9)):
        saves = holdings.reserve_tails(holding, low=low, high=high, written=written)
        boundaries.append([save.boundary for save in saves])
    assert boundaries == [[8], [8], [8, 12], [8, 12]]
    assert len({save.tail for save in saves}) == 2
