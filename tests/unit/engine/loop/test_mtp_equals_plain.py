"""Speculation changes speed, never text: with drafts of any quality the output is the plain greedy one."""

from __future__ import annotations

import json
from functools import cache

import pytest
from safetensors.torch import load_file

from dsv4_engine.request import FinishReason, SamplingParams
from engine_batches import GOLDEN, poison
from serving import make_engine, random_prompts, replace_drafts, run, runner_of, serve, tokens_of

AROUND_128 = [*range(118, 127), *range(246, 254)]
"""Prompts after which a 128-token window completes in the middle of a draft chain."""


@pytest.fixture(scope="module")
def around():
    """Prompts and their plain tokens, by length."""
    prompts = random_prompts(AROUND_128)
    plain = tokens_of(serve(prompts, num_drafts=0, max_new_tokens=16))
    return dict(zip(AROUND_128, zip(prompts, plain, strict=True), strict=True))


@pytest.mark.parametrize("num_drafts", range(1, 8))
def test_where_a_128_window_completes_within_a_draft(around, num_drafts):
    # Each count of drafts meets every other length, even ones or odd; two of them meet all.
    lengths = AROUND_128 if num_drafts in (3, 7) else AROUND_128[num_drafts % 2 :: 2]
    prompts, plain = zip(*(around[length] for length in lengths), strict=True)
    engine = make_engine(num_drafts=num_drafts, chunk_tokens=512, max_requests=len(prompts))
    poison(runner_of(engine))
    results = run(engine, prompts, max_new_tokens=16)
    assert tokens_of(results) == list(plain)
    assert all(1 <= gained <= num_drafts + 1 for result in results for gained in result.accept_lens)


LENGTHS = [1, 2, 5, 33, 64, 127, 130, 3, 40]


@pytest.fixture(scope="module")
def one_by_one():
    """Prompts and their tokens, each alone in an engine that takes it at once; by length."""
    prompts = random_prompts(LENGTHS, seed=2)
    tokens = [serve([prompt], num_drafts=0, chunk_tokens=400)[0].tokens for prompt in prompts]
    return dict(zip(LENGTHS, zip(prompts, tokens, strict=True), strict=True))


@pytest.mark.parametrize(
    ("chunk_tokens", "num_drafts", "lengths"),
    [
        # A step a token: the longest prompt only where its chunks pass through target and MTP layer.
        (1, 0, [1, 33, 5]),
        (1, 3, [1, 33, 130, 5]),
        (3, 0, [1, 33, 130, 5]),
        (3, 3, [1, 33, 130, 5]),
        (31, 0, LENGTHS),
        (31, 3, LENGTHS),
        (128, 0, LENGTHS),
        (128, 3, LENGTHS),
    ],
)
def test_chunk_size_and_batch_change_nothing(one_by_one, chunk_tokens, num_drafts, lengths):
    prompts, tokens = zip(*(one_by_one[length] for length in lengths), strict=True)
    engine = make_engine(num_drafts=num_drafts, chunk_tokens=chunk_tokens, max_requests=4)
    poison(runner_of(engine))
    assert tokens_of(run(engine, prompts)) == list(tokens)


KNOWN = [1, 4, 6, 7, 30, 61, 64, 119, 120, 121, 122, 124, 125, 126, 250, 251]


@cache
def _future_of_all():
    """The plain continuation of every known prompt, 40 tokens; by prompt."""
    prompts = random_prompts(KNOWN, seed=3)
    plain = tokens_of(serve(prompts, num_drafts=0, max_new_tokens=40, chunk_tokens=512, max_requests=len(KNOWN)))
    return dict(zip(map(tuple, prompts), plain, strict=True))


def known(lengths):
    """Prompts of these lengths, and their plain continuations by prompt."""
    assert set(lengths) <= set(KNOWN)
    return random_prompts(lengths, seed=3), _future_of_all()


@pytest.mark.parametrize("num_drafts", [1, 3, 7])
def test_perfect_drafts_are_all_accepted(num_drafts):
    prompts, future = known([4, 61, 119, 122, 125, 250])
    engine = make_engine(num_drafts=num_drafts)
    replace_drafts(engine, lambda request: future[request.prompt][len(request.output) :])
    for prompt, result in zip(prompts, run(engine, prompts, max_new_tokens=25), strict=True):
        assert result.tokens == future[tuple(prompt)][:25]
        assert set(result.accept_lens) == {num_drafts + 1}


@pytest.mark.parametrize("num_drafts", [1, 3, 7])
def test_drafts_that_are_always_wrong_cost_only_speed(num_drafts):
    prompts, future = known([4, 61, 119, 122, 125, 250])
    engine = make_engine(num_drafts=num_drafts)
    replace_drafts(engine, lambda request: [(t + 1) % 320 for t in future[request.prompt][len(request.output) :]])
    for prompt, result in zip(prompts, run(engine, prompts, max_new_tokens=15), strict=True):
        assert result.tokens == future[tuple(prompt)][:15]
        assert result.accept_lens == (1,) * 14


def test_only_drafts_before_the_first_wrong_one_count():
    prompts, future = known([7, 120, 124, 251])

    def right_wrong_right(request):
        coming = list(future[request.prompt][len(request.output) :])
        coming[1] = (coming[1] + 1) % 320
        return coming

    engine = make_engine(num_drafts=3)
    replace_drafts(engine, right_wrong_right)
    for prompt, result in zip(prompts, run(engine, prompts, max_new_tokens=21), strict=True):
        assert result.tokens == future[tuple(prompt)][:21]
        assert result.accept_lens == (2,) * 10


def test_random_drafts_in_a_mixed_batch():
    prompts, future = known([1, 30, 121, 126, 250, 64])
    state = [12345]

    def sometimes(request):
        state[0] = (1103515245 * state[0] + 12345) % 2**31
        right = state[0] >> 16 & 3
        coming = future[request.prompt][len(request.output) :]
        return [*coming[:right], *((t + 1) % 320 for t in coming[right:])]

    engine = make_engine(num_drafts=3, max_requests=3)
    replace_drafts(engine, sometimes)
    results = run(engine, prompts, max_new_tokens=30)
    assert [result.tokens for result in results] == [future[tuple(prompt)][:30] for prompt in prompts]
    assert {gained for result in results for gained in result.accept_lens} == {1, 2, 3, 4}


@pytest.mark.parametrize("exact_num_tokens", [False, True])
def test_accept_lengths_are_those_of_the_golden_loops(exact_num_tokens):
    manifest, golden = json.loads((GOLDEN / "manifest.json").read_text()), load_file(GOLDEN / "golden.safetensors")
    prompts = [golden[f"p{length}.input_ids"].tolist() for length in manifest["spec"]]
    results = serve(prompts, max_new_tokens=manifest["gen"], exact_num_tokens=exact_num_tokens)
    for result, loop in zip(results, manifest["spec"].values(), strict=True):
        assert list(result.accept_lens) == loop["accept_lens"]
        assert list(result.tokens) == loop["tokens"]
    gained = [count for result in results for count in result.accept_lens]
    assert sum(gained) / len(gained) == pytest.approx(manifest["mean_accept"])


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 6])
def test_the_limit_cuts_within_an_accepted_run(limit):
    prompts, future = known([6, 120])
    engine = make_engine(num_drafts=3)
    replace_drafts(engine, lambda request: future[request.prompt][len(request.output) :])
    for prompt, result in zip(prompts, run(engine, prompts, max_new_tokens=limit), strict=True):
        assert result.tokens == future[tuple(prompt)][:limit]
        assert result.finish_reason is FinishReason.LENGTH
        assert len(result.accept_lens) == -(-(limit - 1) // 4)


@pytest.mark.parametrize("place", range(6))
def test_an_end_token_within_an_accepted_run_ends_the_request(place):
    prompts, future = known([6, 120])
    stop = future[tuple(prompts[0])][place]
    expected = [future[tuple(prompt)] for prompt in prompts]
    expected = [tokens[: tokens.index(stop) + 1] if stop in tokens[:20] else tokens[:20] for tokens in expected]
    engine = make_engine(num_drafts=3)
    replace_drafts(engine, lambda request: future[request.prompt][len(request.output) :])
    object.__setattr__(engine.config, "eos_token_ids", (stop,))
    results = run(engine, prompts, max_new_tokens=20, ignore_eos=False)
    assert tokens_of(results) == expected
    assert results[0].finish_reason is FinishReason.STOP


def test_a_slot_that_drafted_past_its_end_serves_the_next_request():
    prompts, future = known([122, 250, 7, 119])
    engine = make_engine(num_drafts=7, max_requests=1)
    replace_drafts(engine, lambda request: future[request.prompt][len(request.output) :])
    limits = [3, 5, 9, 12]
    results = run(engine, prompts, max_new_tokens=limits)
    assert tokens_of(results) == [future[tuple(p)][:n] for p, n in zip(prompts, limits, strict=True)]


SAMPLED = (
    SamplingParams(temperature=0.9, seed=3),
    SamplingParams(temperature=1.3, top_k=30, top_p=0.9, frequency_penalty=0.4, seed=4),
    SamplingParams(repetition_penalty=1.4, presence_penalty=0.2, logprobs=2),
    SamplingParams(temperature=0.6, min_p=0.05, seed=2**63 + 9),
)


def serve_sampled(prompts, **options):
    """Tokens of requests that each draw by their own parameters."""
    engine = make_engine(**options)
    ids = [
        engine.add(prompt, max_new_tokens=20, ignore_eos=True, sampling=SAMPLED[index % len(SAMPLED)])
        for index, prompt in enumerate(prompts)
    ]
    while engine.has_work:
        engine.step()
    return [engine.result(request) for request in ids]


@pytest.fixture(scope="module")
def drawn_alone():
    prompts = random_prompts([7, 122, 33, 64, 126, 3], seed=11)
    return prompts, [result.tokens for result in serve_sampled(prompts, num_drafts=0, max_requests=1, chunk_tokens=400)]


@pytest.mark.parametrize(
    ("num_drafts", "overlap", "mixed", "graphs"),
    [
        (0, True, True, True),
        (3, False, False, False),
        (3, True, False, False),
        (3, False, True, True),
        (3, True, True, True),
    ],
)
def test_drawn_tokens_are_those_of_each_request_alone(drawn_alone, num_drafts, overlap, mixed, graphs):
    prompts, expected = drawn_alone
    results = serve_sampled(
        prompts, num_drafts=num_drafts, overlap=overlap, mixed=mixed, graphs=graphs, max_requests=4, chunk_tokens=48
    )
    assert [result.tokens for result in results] == expected
    asked = [index for index, result in enumerate(results) if result.logprobs]
    assert asked == [2] and len(results[2].logprobs) == 20


def test_simulated_accept_lengths_have_the_mean_that_was_asked_for():
    results = serve(random_prompts([9, 40]), num_drafts=3, simulate_accept_len=2.5, max_new_tokens=120)
    gained = [count for result in results for count in result.accept_lens]
    assert sum(gained) / len(gained) == pytest.approx(2.5, abs=0.15)
