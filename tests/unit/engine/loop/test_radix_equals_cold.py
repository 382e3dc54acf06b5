"""A prefix that was kept gives what computing it again would: tokens, logprobs and accept lengths."""

from __future__ import annotations

import pytest

from dsv4_engine.request import SamplingParams
from engine_batches import poison
from serving import make_engine, random_prompts, runner_of, tokens_of

PAGE = 128
TOLERANCE = 1e-4


def serve_one(engine, prompt, *, count=12):
    request = engine.add(prompt, max_new_tokens=count, ignore_eos=True, sampling=SamplingParams(logprobs=3))
    while engine.has_work:
        engine.step()
    return engine.result(request)


def assert_same(warm, cold):
    assert (warm.tokens, warm.accept_lens) == (cold.tokens, cold.accept_lens)
    for ours, theirs in zip(warm.logprobs, cold.logprobs, strict=True):
        assert [token for token, _ in ours.top] == [token for token, _ in theirs.top]
        for (_, ours_value), (_, theirs_value) in zip(ours.top, theirs.top, strict=True):
            assert ours_value == pytest.approx(theirs_value, abs=TOLERANCE)


def make(**options):
    settings = {"page_size": PAGE, "chunk_tokens": 150, "num_pages": 12, "num_tails": 12, "max_requests": 2}
    engine = make_engine(**settings | options)
    poison(runner_of(engine))
    return engine


@pytest.mark.parametrize(("num_drafts", "overlap"), [(0, True), (1, False), (3, True)])
def test_every_length_around_a_page_border(num_drafts, overlap):
    [base] = random_prompts([300], seed=31)
    warm = make(num_drafts=num_drafts, overlap=overlap)
    serve_one(warm, base, count=1)
    hits = []
    cold = make(num_drafts=num_drafts, radix=False)
    for length in (128, 129, 130, 257, 258, 300):
        prompt = [*base[: length - 1], 7]  # ends otherwise, so the last page is shared only where it lies before
        result = serve_one(warm, prompt, count=5)
        assert_same(result, serve_one(cold, prompt, count=5))
        hits.append(result.cached_tokens)
    # With drafts a page's rows depend on the token after it, which is the 7 where the prompt has one token more.
    expected = [0, 0, 128, 128, 256, 256] if num_drafts else [0, 128, 128, 256, 256, 256]
    assert hits == expected


@pytest.mark.parametrize("num_drafts", [0, 3])
def test_output_that_filled_a_page_is_kept(num_drafts):
    [prompt] = random_prompts([120], seed=32)
    warm = make(num_drafts=num_drafts)
    first = serve_one(warm, prompt, count=30)
    turn = [*prompt, *first.tokens, 5, 6, 7]
    result = serve_one(warm, turn)
    assert result.cached_tokens == 128
    assert_same(result, serve_one(make(num_drafts=num_drafts, radix=False), turn))


def test_other_requests_in_between_change_nothing():
    base, other, third = random_prompts([270, 280, 290], seed=33)
    warm = make()
    serve_one(warm, base)
    for prompt in (other, third):
        serve_one(warm, prompt)
    again = serve_one(warm, base)
    assert again.cached_tokens == 256
    assert_same(again, serve_one(make(radix=False), base))


@pytest.mark.parametrize(
    ("num_tails", "num_pages"),
    [(1, 6), pytest.param(2, 4, marks=pytest.mark.slow), pytest.param(3, 4, marks=pytest.mark.slow)],
)
def test_under_eviction_of_pages_and_tails(num_tails, num_pages):
    """Prompts that share one or two pages, more of them than fit, in an order that makes old ones come back."""
    base = random_prompts([260], seed=34)[0]
    ends = random_prompts([20, 21, 22, 23], seed=35)
    prompts = [[*base[:shared], *end] for shared in (130, 260) for end in ends]
    cold = make_engine(page_size=PAGE, radix=False, max_requests=8)
    expected = dict(enumerate(serve_one(cold, prompt, count=4) for prompt in prompts))
    warm = make(num_tails=num_tails, num_pages=num_pages, max_requests=1)
    cached = 0
    for index in (0, 1, 4, 0, 5, 2, 7, 4, 3):
        result = serve_one(warm, prompts[index], count=4)
        assert_same(result, expected[index])
        cached += result.cached_tokens
    stats = warm.stats()
    assert 0 < cached == stats.cached_tokens < stats.prompt_tokens
    assert warm.flush_cache() and warm.stats().free_pages == num_pages and warm.stats().free_tails == num_tails


@pytest.mark.parametrize("overlap", [False, True])
def test_a_hit_while_the_first_still_runs(overlap):
    """The second request reads pages that the first one uses."""
    [base] = random_prompts([200], seed=36)
    prompts = [base, [*base[:150], 3, 4]]
    cold = [serve_one(make(radix=False), prompt, count=20).tokens for prompt in prompts]
    engine = make(overlap=overlap)
    first = engine.add(prompts[0], max_new_tokens=20, ignore_eos=True)
    for _ in range(4):
        engine.step()
    second = engine.add(prompts[1], max_new_tokens=20, ignore_eos=True)
    while engine.has_work:
        engine.step()
    results = [engine.result(request) for request in (first, second)]
    assert tokens_of(results) == cold and results[1].cached_tokens == 128


def test_flushed_prefixes_are_computed_again():
    [prompt] = random_prompts([200], seed=37)
    engine = make()
    engine.add(prompt, max_new_tokens=2)
    assert not engine.flush_cache()
    while engine.has_work:
        engine.step()
    assert engine.flush_cache() and serve_one(engine, prompt).cached_tokens == 0


def test_without_the_radix_cache_nothing_is_kept():
    [prompt] = random_prompts([200], seed=37)
    engine = make(radix=False)
    assert [serve_one(engine, prompt).cached_tokens for _ in range(2)] == [0, 0]
    assert engine.stats().cached_pages == engine.stats().num_tails == 0
