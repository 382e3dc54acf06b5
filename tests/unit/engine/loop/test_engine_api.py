"""The calls that a server makes: add, abort, forget, results, statistics, flush; and what they refuse."""

from __future__ import annotations

import pytest

from dsv4_engine.engine import Engine, drawn_seed
from dsv4_engine.errors import EngineError
from dsv4_engine.options import EngineOptions
from dsv4_engine.parallel.experts import ExpertGroup
from dsv4_engine.parallel.group import TensorParallelGroup
from dsv4_engine.parallel.groups import ParallelGroups
from dsv4_engine.parallel.place import ParallelSizes, Place
from dsv4_engine.request import FinishReason, SamplingParams
from engine_batches import GOLDEN
from serving import make_engine, random_prompts, run


def drain(engine):
    made = []
    while engine.has_work:
        made.append(engine.step())
    return made


def test_a_forgotten_request_leaves_nothing():
    engine = make_engine()
    ids = [engine.add([1, 2, 3], max_new_tokens=2, ignore_eos=True) for _ in range(3)]
    with pytest.raises(EngineError, match="request 0 has not ended"):
        engine.forget(ids[0])
    drain(engine)
    for request in ids:
        engine.forget(request)
    assert engine._requests == {}
    with pytest.raises(EngineError, match="request 1 is not known"):
        engine.result(1)
    with pytest.raises(EngineError, match="request 1 is not known"):
        engine.forget(1)
    assert engine.abort(1) is False
    assert engine.add([1], max_new_tokens=1) == 3, "ids are not used again"
    drain(engine)


def test_what_is_withdrawn_keeps_its_tokens_and_ends_once():
    engine = make_engine(num_drafts=0)
    request = engine.add([1, 2, 3], max_new_tokens=9, ignore_eos=True)
    steps = [engine.step() for _ in range(3)]
    assert engine.abort(request) and not engine.abort(request)
    result = engine.result(request)
    assert result.finish_reason is FinishReason.ABORT
    assert result.tokens == tuple(token for step in steps for token in step.new_tokens[request])
    assert not engine.has_work and engine.num_free_slots == 8


def test_steps_say_who_got_what():
    engine = make_engine(num_drafts=3)
    asked = SamplingParams(logprobs=2)
    ids = [engine.add(prompt, max_new_tokens=7, ignore_eos=True, sampling=asked) for prompt in random_prompts([5, 9])]
    silent = engine.add([1, 2], max_new_tokens=7, ignore_eos=True)
    made = drain(engine)
    for request in (*ids, silent):
        result = engine.result(request)
        assert result.tokens == tuple(token for step in made for token in step.new_tokens.get(request, ()))
        assert result.logprobs == tuple(known for step in made for known in step.logprobs.get(request, ()))
        assert len(result.logprobs) == (0 if request == silent else 7)
        assert sum(request in step.finished for step in made) == 1
    assert sum(map(len, (step.accept_lens for step in made))) == engine.stats().verifies


def test_own_end_tokens_end_a_request_even_if_the_models_are_ignored():
    [free] = run(make_engine(), [[5, 6, 7]], max_new_tokens=8)
    engine = make_engine()
    request = engine.add([5, 6, 7], max_new_tokens=8, ignore_eos=True, stop_ids=[free.tokens[3], 319])
    drain(engine)
    assert engine.result(request).tokens == free.tokens[: free.tokens.index(free.tokens[3]) + 1]
    assert engine.result(request).finish_reason is FinishReason.STOP


def test_statistics_add_up():
    engine = make_engine(max_requests=2)
    assert (engine.stats().running, engine.stats().waiting, engine.stats().steps) == (0, 0, 0)
    for prompt in random_prompts([40, 50, 300]):
        engine.add(prompt, max_new_tokens=6, ignore_eos=True)
    engine.step()
    now = engine.stats()
    assert (now.running, now.waiting, now.free_slots) == (2, 1, 0)
    assert now.owned_pages == 2 and now.free_pages + now.owned_pages + now.cached_pages == now.num_pages
    drain(engine)
    end = engine.stats()
    assert (end.running, end.waiting, end.finished, end.output_tokens, end.prompt_tokens) == (0, 0, 3, 18, 390)
    assert (end.owned_pages, end.cached_pages, end.evictable) == (0, 1, 1)
    assert end.accept_length == end.accepted / end.verifies and len(end.accepted_at) == 3
    assert end.verifies + sum(end.accepted_at) == end.accepted


def test_seeds_are_drawn_by_engine_and_request():
    drawn = {drawn_seed(engine, request) for engine in range(20) for request in range(50)}
    assert len(drawn) == 1000 and all(0 <= seed < 2**63 for seed in drawn)
    tokens = []
    for seed, own in ((0, None), (0, None), (1, None), (1, 77), (2, 77)):
        engine = make_engine(seed=seed, num_drafts=0)
        request = engine.add([1], max_new_tokens=8, ignore_eos=True, sampling=SamplingParams(temperature=5, seed=own))
        drain(engine)
        tokens.append(engine.result(request).tokens)
    assert tokens[0] == tokens[1] != tokens[2] and tokens[3] == tokens[4] != tokens[2]


def replica(rank: int) -> ParallelGroups:
    """The groups of one of two replicas, as far as calls that compute nothing need them."""
    place, alone = Place(rank=rank, sizes=ParallelSizes(dp=2)), TensorParallelGroup.single()
    return ParallelGroups(place=place, tp=alone, experts=ExpertGroup(place=place, world=alone, peers=alone), host=alone)


def test_no_two_replicas_draw_the_same_seed():
    drawn = []
    for rank in range(2):
        engine = make_engine(groups=replica(rank))
        drawn += [engine._requests[engine.add([1], max_new_tokens=1)].seed for _ in range(3)]
    assert len(set(drawn)) == 6


def test_ranks_with_less_memory_decide_how_many_pages_all_have(monkeypatch):
    memory = {}
    monkeypatch.setattr("dsv4_engine.capacity.fraction_of_memory", lambda share, device: 12_000_000)
    monkeypatch.setattr(ParallelGroups, "exchange", lambda groups, own: [(memory.get("other", own),), (own,)])
    pages = {"alone": make_engine(mem_fraction=0.5).stats().num_pages}
    for other in (3_000_000, 30_000_000):
        memory["other"] = other
        pages[other] = make_engine(mem_fraction=0.5).stats().num_pages
    assert pages[3_000_000] < pages["alone"] == pages[30_000_000]


def test_replicas_refuse_to_mix():
    with pytest.raises(EngineError, match="do not mix prompts and decoding") as caught:
        make_engine(groups=replica(0), mixed=True)
    assert caught.value.hint == "leave mixed off"


def test_a_request_that_no_page_count_could_hold_is_refused():
    engine = make_engine(num_pages=1, page_size=128)
    with pytest.raises(EngineError, match="may need 2 pages of 128 tokens, and the caches have 1"):
        engine.add([1] * 100, max_new_tokens=40)
    assert not engine.has_work and engine._requests == {}
    assert len(run(engine, [[1] * 100], max_new_tokens=20)[0].tokens) == 20


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"page_size": 100}, "page_size is 100"),
        ({"page_size": 0}, "page_size is 0"),
        ({"num_pages": 0}, "num_pages is 0"),
        ({"num_tails": -1}, "num_tails is -1"),
        ({"num_pages": 3, "cache_bytes": 5}, "num_pages and cache_bytes are both given"),
        ({"mem_fraction": 1.5}, "mem_fraction is 1.5"),
        ({"mem_fraction": 0.0}, "mem_fraction is 0.0"),
        ({"cache_bytes": 1000}, "does not hold one request"),
        ({"mem_fraction": 1e-9}, "does not hold one request"),
        ({"overlap": "yes"}, "overlap is 'yes'"),
        ({"graphs": "on"}, "graphs is 'on'"),
        ({"plan_on": "moon"}, "plan_on 'moon'"),
        ({"backend": "abacus"}, "abacus"),
        ({"faults": ("gremlins",)}, "fault 'gremlins'"),
        ({"faults": ("freed_staging",)}, "finds no compress plan in staging"),
        ({"faults": ("padded_output_size",)}, "finds no output_size to pad"),
        ({"simulate_accept_len": 5.0}, "simulate_accept_len is 5.0"),
        ({"simulate_accept_len": 2.0, "num_drafts": 0}, "simulate_accept_len needs drafts"),
    ],
)
def test_options_that_cannot_be_met_are_refused(options, said):
    with pytest.raises(EngineError, match=said) as caught:
        Engine(EngineOptions(**{"model": str(GOLDEN), "context_len": 400} | options))
    assert caught.value.hint and "\n" not in caught.value.message


def test_overlap_is_a_gpus_unless_asked_for():
    assert not EngineOptions().overlaps and EngineOptions(device="cuda:1").overlaps
    assert EngineOptions(overlap=True).overlaps and not EngineOptions(device="cuda", overlap=False).overlaps


def test_a_budget_is_used_and_kept_to():
    roomy = make_engine(cache_bytes=8_000_000, max_requests=2)
    plan = roomy.runner.cache_plan
    assert 7_000_000 < plan.num_bytes <= 8_000_000
    stats = roomy.stats()
    assert stats.num_pages == plan.layout.num_pages - 1 > 8 and stats.num_tails == stats.num_pages // 8
    bare = make_engine(cache_bytes=8_000_000, max_requests=2, radix=False)
    assert bare.stats().num_pages == 2 * bare.runner.layout.pages_per_request, "no more than requests could use"
    assert len(run(roomy, random_prompts([300]), max_new_tokens=5)[0].tokens) == 5


@pytest.mark.parametrize(("radix", "num_tails", "expected"), [(True, None, 16), (True, 3, 3), (False, 3, 0)])
def test_how_many_tails_there_are(radix, num_tails, expected):
    assert make_engine(radix=radix, num_tails=num_tails).stats().num_tails == expected
