"""Drafts of any quality, drawn tokens, mixed steps, unread steps: always the tokens of plain decoding, one by one."""

from __future__ import annotations

from functools import cache

import pytest
import torch

from dsv4_engine.plan import Running, StepPlan
from dsv4_engine.request import Request, SamplingParams
from worker_steps import do, generate, make_request, make_worker, prefill, running

OUTPUT = 24
PARAMS = (
    SamplingParams(),
    SamplingParams(temperature=0.8),
    SamplingParams(temperature=1.2, top_k=40, top_p=0.9, min_p=0.01, frequency_penalty=0.6, presence_penalty=0.3),
    SamplingParams(repetition_penalty=1.5, frequency_penalty=0.2, logprobs=2),
)
LENGTHS = (9, 122, 31, 60)


@cache
def worker_with(num_drafts: int, lengths_known: bool = True):
    return make_worker(num_drafts=num_drafts, lengths_known=lengths_known)


def requests(output: int = OUTPUT) -> list[Request]:
    """Greedy, drawn, and penalised ones, side by side."""
    return [
        make_request(slot, length, sampling=params, seed=slot * 1001, output=output)
        for slot, (length, params) in enumerate(zip(LENGTHS, PARAMS, strict=True), start=1)
    ]


@cache
def plain() -> dict[tuple[int, ...], tuple[int, ...]]:
    """Tokens by prompt, each request alone and without drafts; some more than any test asks for."""
    worker = worker_with(0)
    return {each.prompt: generate(worker, [each])[0] for each in requests(OUTPUT + 16)}


def coming(each: Running, start: int) -> list[int]:
    """Plain tokens after the newest one, which stands at position `start`."""
    return list(plain()[each.request.prompt][start - len(each.request.prompt) + 1 :])


def drafter_of(kind: str, width: int):
    """Perfect: what plain decoding says. Wrong: never that. Random: each draft right or wrong by chance."""
    generator = torch.Generator().manual_seed(5)

    def spoil(tokens):
        if kind == "perfect":
            return tokens
        if kind == "wrong":
            return [(token + 1) % 320 for token in tokens]
        wrong = torch.randint(0, 2, (width,), generator=generator).tolist()
        return [(token + bad) % 320 for token, bad in zip(tokens, wrong, strict=True)]

    def draft(run, state):
        chains = (coming(each, start)[:width] for each, start in zip(run, state.starts.tolist(), strict=True))
        return torch.tensor([spoil([*chain, *[0] * width][:width]) for chain in chains])

    return draft


@pytest.fixture
def drafting():
    """Lets a worker draft otherwise for one test."""
    changed = []

    def change(worker, kind: str):
        if kind != "mtp":
            changed.append((worker, worker.drafter))
            worker.drafter = drafter_of(kind, worker.rows_per_request - 1)
        return worker

    yield change
    for worker, drafter in changed:
        worker.drafter = drafter


@pytest.mark.parametrize("kind", ["mtp", "perfect", "wrong", "random"])
@pytest.mark.parametrize("num_drafts", [1, 3, 7])
def test_drafts_of_any_quality(drafting, num_drafts, kind):
    batch, gained = requests(), []
    worker = drafting(worker_with(num_drafts), kind)
    do(worker, StepPlan(chunks=prefill(*batch)))
    while left := [each for each in batch if each.finish_reason is None]:
        gained += do(worker, StepPlan(running=running(*left))).accept_lens
    assert [tuple(each.output) for each in batch] == [plain()[each.prompt][:OUTPUT] for each in batch]
    expected = {"perfect": {num_drafts + 1}, "wrong": {1}}.get(kind, set(range(1, num_drafts + 2)))
    assert set(gained) == expected if kind in ("perfect", "wrong") else set(gained) <= expected
    if kind == "random":
        assert {1, 2} <= set(gained)


@pytest.mark.parametrize("num_drafts", [0, 2])
def test_prompts_join_running_requests_in_mixed_steps(num_drafts):
    """One request at a time comes in, in two chunks, while those before it go on."""
    batch, worker = requests(), worker_with(num_drafts)
    here: list[Request] = []
    for each in batch:
        (whole,) = prefill(each)
        half = whole.length // 2
        for start, length in ((0, half), (half, whole.length - half)):
            chunk = type(whole)(request=each, start=start, length=length)
            do(worker, StepPlan(chunks=(chunk,), running=running(*here)))
        here.append(each)
    while left := [each for each in batch if each.finish_reason is None]:
        do(worker, StepPlan(running=running(*left)))
    assert [tuple(each.output) for each in batch] == [plain()[each.prompt][:OUTPUT] for each in batch]


@pytest.mark.parametrize("kind", ["mtp", "random"])
@pytest.mark.parametrize("num_drafts", [0, 3])
def test_steps_launched_long_before_they_are_read(drafting, num_drafts, kind):
    """The host knows bounds alone: every step might have gained all its rows."""
    batch = requests(output=99)
    worker = worker_with(num_drafts, False)
    worker = drafting(worker, kind) if num_drafts else worker
    pending, steps = [worker.launch(StepPlan(chunks=prefill(*batch)))], 6
    for step in range(steps):
        bounds = [Running(request=each, max_cached=len(each.prompt) + step * worker.rows_per_request) for each in batch]
        pending.append(worker.launch(StepPlan(running=tuple(bounds))))
    for step in pending:
        for each, tokens in zip(batch, step.read().tokens, strict=True):
            each.take(tokens)
    for each in batch:
        assert steps + 1 <= len(each.output)
        assert tuple(each.output) == plain()[each.prompt][: len(each.output)]


def test_a_retracted_request_goes_on_as_if_nothing_had_happened():
    """Its prompt and output are prefilled again, in another slot, with penalties and seed as before."""
    batch, worker = requests(), worker_with(3)
    do(worker, StepPlan(chunks=prefill(*batch)))
    for _ in range(3):
        do(worker, StepPlan(running=running(*batch)))
    generate(worker, [make_request(slot, 20, sampling=PARAMS[2], output=5) for slot in (1, 2, 3, 4)])
    for each, slot in zip(batch, (2, 3, 4, 1), strict=True):
        each.slot, each.prefill_len = slot, len(each.tokens)
    generate(worker, batch)
    assert [tuple(each.output) for each in batch] == [plain()[each.prompt][:OUTPUT] for each in batch]


def test_equal_seeds_give_equal_tokens_and_others_do_not():
    params = SamplingParams(temperature=1.5)
    worker = worker_with(2)

    def drawn(slot, seed):
        request = make_request(slot, 9, sampling=params, seed=seed)
        request.prompt = tuple(range(20, 29))
        return request

    same, again, other = generate(worker, [drawn(1, 7), drawn(2, 7 + 2**64), drawn(3, 8)])
    assert same == again != other
