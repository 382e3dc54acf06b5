"""The golden model under random service: shared prefixes, arrivals, stops, withdrawals, little memory, all options."""

from __future__ import annotations

import random

import pytest

from dsv4_engine.request import FinishReason
from engine_batches import poison
from serving import make_engine, random_prompts, runner_of, serve

LIMIT = 24


def choose_options(rng: random.Random) -> dict[str, object]:
    return {
        "num_drafts": rng.choice([0, 1, 3, 7]),
        "max_requests": rng.choice([1, 2, 5]),
        "chunk_tokens": rng.choice([20, 64, 500]),
        "page_size": rng.choice([128, 256]),
        "num_pages": rng.choice([4, 5, 8]),
        "num_tails": rng.choice([1, 2, 8]),
        "overlap": rng.random() < 0.6,
        "mixed": rng.random() < 0.5,
        "graphs": rng.random() < 0.3,
        "radix": rng.random() < 0.8,
    }


def serve_randomly(seed: int, prompts, futures) -> dict[str, int]:
    """One engine's life; returns what happened how often."""
    rng = random.Random(seed)
    engine = make_engine(**choose_options(rng))
    poison(runner_of(engine))
    if rng.random() < 0.7:
        engine._scheduler._reserve = lambda: 0  # lets pages run out
    wanted, waiting = {}, [rng.randrange(len(prompts)) for _ in range(9)]
    while waiting or engine.has_work:
        while waiting and rng.random() < 0.5:
            index, limit = waiting.pop(), rng.randint(1, LIMIT)
            stop = [rng.choice(futures[index])] if rng.random() < 0.4 else []
            request = engine.add(
                prompts[index], max_new_tokens=limit, ignore_eos=True, stop_ids=stop, priority=rng.choice([0, 0, 1])
            )
            tokens = futures[index][:limit]
            ends = [place for place, token in enumerate(tokens, 1) if token in stop]
            wanted[request] = tokens[: ends[0]] if ends else tokens
        if wanted and rng.random() < 0.03:
            engine.abort(rng.choice(list(wanted)))
        if engine.has_work:
            engine.step()
    for request, tokens in wanted.items():
        result = engine.result(request)
        got = tokens[: len(result.tokens)] if result.finish_reason is FinishReason.ABORT else tokens
        assert result.tokens == got, (seed, request)
    stats = engine.stats()
    assert engine.flush_cache() and engine.stats().free_pages == stats.num_pages
    assert engine.stats().free_tails == stats.num_tails and engine.num_free_slots == engine.options.max_requests
    return {"retracted": stats.retracted, "aborted": stats.aborted, "cached": stats.cached_tokens}


@pytest.fixture(scope="module")
def material():
    base, *ends = random_prompts([262, 30, 60, 5, 17], seed=50)
    prompts = [[*base[:shared], *end] for shared in (0, 105, 131, 245) for end in ends]
    futures = [
        result.tokens for result in serve(prompts, num_drafts=0, max_new_tokens=LIMIT, chunk_tokens=500, radix=False)
    ]
    return prompts, futures


def test_every_answer_is_its_requests_own(material):
    happened = [serve_randomly(seed, *material) for seed in (3, 8)]
    assert all(sum(each[what] for each in happened) for what in ("retracted", "cached"))


@pytest.mark.slow
def test_every_answer_is_its_requests_own_in_many_services(material):
    happened = [serve_randomly(seed, *material) for seed in range(100, 160)]
    assert all(sum(each[what] for each in happened) for what in ("retracted", "aborted", "cached"))
