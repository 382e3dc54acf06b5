"""Requests from arrival to end: order, slots, refusals, and options that cannot be met."""

from __future__ import annotations

import pytest

from dsv4_engine.engine import Engine
from dsv4_engine.errors import EngineError
from dsv4_engine.options import EngineOptions
from dsv4_engine.parallel.group import TensorParallelGroup
from dsv4_engine.parallel.groups import ParallelGroups
from dsv4_engine.request import FinishReason, Request, require_servable
from engine_batches import GOLDEN
from fake_loop import FakeLoop
from serving import make_engine, random_prompts


@pytest.fixture(scope="module")
def engine():
    return make_engine(context_len=20)


@pytest.mark.parametrize(
    ("prompt", "max_new_tokens", "named"),
    [
        ([], 4, "empty"),
        ([5] * 20, 4, "20 tokens"),
        ([5] * 300, 4, "300 tokens"),
        ([5, 320], 4, "token id 320"),
        ([-1], 4, "token id -1"),
        ([5], 0, "max_new_tokens is 0"),
    ],
)
def test_a_prompt_that_cannot_be_served_is_refused_and_leaves_no_work(engine, prompt, max_new_tokens, named):
    with pytest.raises(EngineError, match=named) as caught:
        engine.add(prompt, max_new_tokens=max_new_tokens)
    assert caught.value.hint and "\n" not in caught.value.message
    assert not engine.has_work
    with pytest.raises(EngineError) as alone:
        require_servable(prompt, max_new_tokens=max_new_tokens, context_len=20, vocab_size=320)
    assert (alone.value.message, alone.value.hint) == (caught.value.message, caught.value.hint)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"num_drafts": 8}, "num_drafts is 8"),
        ({"num_drafts": -1}, "num_drafts is -1"),
        ({"max_requests": 0}, "max_requests is 0"),
        ({"chunk_tokens": 0}, "chunk_tokens is 0"),
        ({"dtype": "int4"}, "int4"),
        ({"device": "abacus"}, "abacus"),
        ({"context_len": 4097}, "context_len is 4097"),
        ({"context_len": 1}, "context_len is 1"),
        ({"model": "nowhere"}, "nowhere"),
    ],
)
def test_options_that_cannot_be_met_are_refused_in_a_sentence(options, named):
    with pytest.raises(EngineError, match=named) as caught:
        Engine(EngineOptions(**{"model": str(GOLDEN)} | options))
    assert caught.value.hint and "\n" not in caught.value.message


@pytest.mark.parametrize("size", [3, 8, 16])
def test_ranks_that_do_not_divide_the_model_are_told_which_numbers_do(size):
    with pytest.raises(EngineError, match=f"over {size} ranks") as caught:
        Engine(
            EngineOptions(model=str(GOLDEN)),
            groups=ParallelGroups.tensor_parallel(TensorParallelGroup(rank=0, size=size)),
        )
    assert caught.value.hint is not None and caught.value.hint.endswith("1, 2, 4")


def test_a_waiting_request_gets_the_slot_of_the_first_that_ends():
    engine = make_engine(max_requests=2, num_drafts=0)
    prompts = random_prompts([4, 5, 6])
    ids = [engine.add(p, max_new_tokens=n, ignore_eos=True) for p, n in zip(prompts, (2, 9, 3), strict=True)]
    assert ids == [0, 1, 2]
    kinds = []
    while engine.has_work:
        step = engine.step()
        kinds.append((step.kind, step.requests, step.finished))
        assert engine.num_free_slots >= 0
    assert kinds[:3] == [("prefill", 2, ()), ("decode", 2, (0,)), ("prefill", 1, ())]
    assert engine.num_free_slots == 2
    assert [len(engine.result(request).tokens) for request in ids] == [2, 9, 3]


def test_a_result_can_be_read_while_the_request_runs():
    engine = make_engine(num_drafts=0)
    request = engine.add([1, 2, 3], max_new_tokens=3, ignore_eos=True)
    assert engine.result(request).tokens == () and engine.result(request).finish_reason is None
    engine.step()
    assert len(engine.result(request).tokens) == 1 and engine.result(request).finish_reason is None
    engine.step()
    engine.step()
    assert engine.result(request).finish_reason is FinishReason.LENGTH and not engine.has_work


def test_chunks_of_several_prompts_share_a_step_and_the_budget():
    loop = FakeLoop(max_requests=3, chunk_tokens=10, num_pages=40)
    for length in (7, 6, 4, 2):
        loop.add(range(length), 5)
    planned = []
    while (plan := loop.step()[0].plan).chunks:
        planned.append([(chunk.request.id, chunk.start, chunk.length) for chunk in plan.chunks])
    assert planned == [[(0, 0, 7), (1, 0, 3)], [(1, 3, 3), (2, 0, 4)]]
    assert [request.id for request in plan.requests] == [0, 1, 2]


def test_what_follows_a_stop_token_never_existed():
    request = Request(id=0, prompt=(1,), max_output=10, stop_ids=frozenset({7}))
    assert request.take((3, 7, 4, 5)) == (3, 7)
    assert request.output == [3, 7] and request.finish_reason is FinishReason.STOP
    assert request.take((8,)) == ()
