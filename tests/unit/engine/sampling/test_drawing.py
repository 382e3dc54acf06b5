"""Drawn tokens follow the distribution that the parameters define, with drafts as without."""

from __future__ import annotations

import pytest
import torch

from dsv4_engine.request import Request, SamplingParams
from dsv4_engine.sampling import sampler
from dsv4_engine.sampling.filters import filter_logits
from dsv4_engine.sampling.noise import uniform
from dsv4_engine.sampling.penalties import TokenCounts
from dsv4_engine.sampling.rows import SamplingRows, SamplingRowsCache
from dsv4_engine.sampling.sampler import choose
from dsv4_engine.spec.accept import accept_chain
from engine_batches import OperatorLog

VOCAB, DRAWS = 8, 20_000
CPU = torch.device("cpu")
LOGITS = torch.tensor([0.3, -1.0, 1.2, 0.0, 0.7, -0.4, 2.0, 0.1])
NO_DRAFTS = torch.empty(0, 0, dtype=torch.int64)


def make(number: int, params: SamplingParams, seed: int) -> Request:
    request = Request(id=number, prompt=(1,), max_output=9, stop_ids=frozenset(), sampling=params, seed=seed)
    request.slot = 1
    return request


def draw_many(params: SamplingParams, logits: torch.Tensor, *, position: int = 5) -> torch.Tensor:
    """(DRAWS,) tokens of as many seeds, all with the same logits."""
    counts = TokenCounts(num_slots=2, vocab_size=VOCAB, device=CPU)
    rows = SamplingRows.of([(make(seed, params, seed), 1) for seed in range(DRAWS)], VOCAB, CPU)
    positions = torch.full((DRAWS,), position)
    return choose(logits.expand(DRAWS, -1), positions, NO_DRAFTS, rows, counts).tokens


def chi_square(tokens: torch.Tensor, probs: torch.Tensor) -> float:
    """Against `probs`; what has no probability must not occur."""
    seen = torch.bincount(tokens, minlength=len(probs)).double()
    assert seen[probs == 0].sum() == 0
    expected = probs[probs > 0].double() * len(tokens)
    return (((seen[probs > 0] - expected) ** 2) / expected).sum().item()


LIMIT = 24.3
"""0.1 % quantile of 7 degrees of freedom."""


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=1.0),
        SamplingParams(temperature=0.4),
        SamplingParams(temperature=3.0),
        SamplingParams(temperature=1.5, top_k=3),
        SamplingParams(temperature=1.0, top_p=0.7),
        SamplingParams(temperature=1.0, min_p=0.3),
        SamplingParams(temperature=2.0, top_k=6, top_p=0.8, min_p=0.35),
    ],
    ids=str,
)
def test_tokens_follow_the_filtered_softmax(params):
    scaled = LOGITS.double()[None] / params.temperature
    limits = [torch.tensor([value]) for value in (params.top_k or VOCAB, params.top_p, params.min_p)]
    probs = torch.softmax(filter_logits(scaled, *limits), 1)[0]
    assert chi_square(draw_many(params, LOGITS), probs) < LIMIT


def test_a_wrong_distribution_would_be_seen():
    """The test's own power: a temperature that is 5 % off fails it."""
    probs = torch.softmax(LOGITS.double() / 1.05, 0)
    assert chi_square(draw_many(SamplingParams(temperature=1.0), LOGITS), probs) > LIMIT


def target_logits(context: torch.Tensor) -> torch.Tensor:
    """(..., V) logits after a (...) token: a made-up model that looks one token back."""
    tokens = torch.arange(VOCAB)
    return torch.sin(context[..., None] * 1.7 + tokens * 2.3) * 1.5


def softmax_after(token: int) -> torch.Tensor:
    return torch.softmax(target_logits(torch.tensor(token)).double(), 0)


def test_accepting_by_equality_is_rejection_sampling():
    """Pairs of tokens gained by a chain of two drafts, against plain drawing and against the textbook's algorithm.

    The drafts are deterministic given what was accepted before: 6 after the newest token, then 2.
    """
    params = SamplingParams(temperature=1.0)
    newest, drafts = torch.full((DRAWS,), 3), torch.tensor([6, 2]).expand(DRAWS, 2)
    windows = torch.cat((newest[:, None], drafts), 1)
    counts = TokenCounts(num_slots=2, vocab_size=VOCAB, device=CPU)
    requests = [make(seed, params, seed) for seed in range(DRAWS)]
    rows = SamplingRows.of([(request, 3) for request in requests], VOCAB, CPU)
    positions = torch.arange(10, 13).repeat(DRAWS)
    predicted = choose(target_logits(windows).flatten(0, 1), positions, NO_DRAFTS, rows, counts).tokens.view(-1, 3)
    accept_lens = accept_chain(drafts, predicted)

    first = torch.softmax(target_logits(newest[0]).double(), 0)
    assert chi_square(predicted[:, 0], first) < LIMIT
    for token in range(VOCAB):
        # Second tokens, of those runs that have one: after an accepted draft, and only then.
        given = predicted[(accept_lens >= 2) & (predicted[:, 0] == token), 1]
        if token != 6:
            assert len(given) == 0
        else:
            assert chi_square(given, softmax_after(6)) < LIMIT
    accepted = (accept_lens >= 2).double().mean().item()
    assert accepted == pytest.approx(first[6].item(), abs=4 * (0.25 / DRAWS) ** 0.5)
    textbook = reject_and_resample(first, draft=6)
    ours = torch.bincount(predicted[:, 0], minlength=VOCAB).double()
    theirs = torch.bincount(textbook, minlength=VOCAB).double()
    assert ((ours - theirs) ** 2 / (ours + theirs)).sum().item() < LIMIT
    assert_equal_to_plain(requests, predicted, accept_lens)


def reject_and_resample(probs: torch.Tensor, *, draft: int) -> torch.Tensor:
    """(DRAWS,) tokens: the draft with probability p(draft), else one of p without it, renormalised."""
    noise = uniform(torch.arange(DRAWS) + 10**6, torch.zeros(DRAWS, dtype=torch.int64), 2)
    rest = probs.clone()
    rest[draft] = 0
    resampled = torch.searchsorted((rest / rest.sum()).cumsum(0), noise[:, 1].contiguous()).clamp_(max=VOCAB - 1)
    return torch.where(noise[:, 0] < probs[draft], draft, resampled)


def assert_equal_to_plain(requests, predicted, accept_lens) -> None:
    """One token at a time with the same seeds gives the same tokens."""
    counts = TokenCounts(num_slots=2, vocab_size=VOCAB, device=CPU)
    rows = SamplingRows.of([(request, 1) for request in requests], VOCAB, CPU)
    token = torch.full((DRAWS,), 3)
    for step in range(3):
        positions = torch.full((DRAWS,), 10 + step)
        token = choose(target_logits(token), positions, NO_DRAFTS, rows, counts).tokens
        gained = accept_lens > step
        assert torch.equal(token[gained], predicted[gained, step])


def test_a_request_draws_the_same_in_any_batch():
    params = SamplingParams(temperature=1.3, top_p=0.9)
    counts = TokenCounts(num_slots=2, vocab_size=VOCAB, device=CPU)
    logits = torch.randn(6, VOCAB, generator=torch.Generator().manual_seed(1))
    requests = [make(1, SamplingParams(), 1), *(make(seed, params, seed * 17) for seed in range(2, 7))]
    positions = torch.arange(6) * 3
    together = choose(
        logits, positions, NO_DRAFTS, SamplingRows.of([(each, 1) for each in requests], VOCAB, CPU), counts
    ).tokens
    for row, request in enumerate(requests):
        rows = SamplingRows.of([(request, 1)], VOCAB, CPU)
        alone = choose(logits[row : row + 1], positions[row : row + 1], NO_DRAFTS, rows, counts).tokens
        assert alone[0] == together[row]
    assert together[0] == logits[0].argmax(), "a greedy request among sampled ones"


def test_blocks_of_rows_change_nothing(monkeypatch):
    params = SamplingParams(temperature=1.3, top_p=0.9)
    whole = draw_many(params, LOGITS)[:100]
    monkeypatch.setattr(sampler, "_BLOCK_ELEMENTS", 7000 * VOCAB)
    assert torch.equal(draw_many(params, LOGITS)[:100], whole)


def test_seeds_and_positions_change_what_is_drawn():
    flat = torch.zeros(VOCAB)
    at_5, at_6 = (draw_many(SamplingParams(temperature=1.0), flat, position=position) for position in (5, 6))
    assert (at_5 == at_6).double().mean().item() == pytest.approx(1 / VOCAB, abs=0.02)
    assert (at_5[1:] == at_5[:-1]).double().mean().item() == pytest.approx(1 / VOCAB, abs=0.02)


def test_an_all_greedy_batch_takes_the_argmax_and_nothing_else():
    requests = [make(1, SamplingParams(), 1), make(2, SamplingParams(temperature=2.0, top_k=1), 2)]
    rows = SamplingRowsCache(VOCAB, CPU)
    counts, logits = TokenCounts(num_slots=2, vocab_size=VOCAB, device=CPU), torch.randn(2, VOCAB)
    asking, positions = [(each, 1) for each in requests], torch.zeros(2)
    rows.get(asking)
    with OperatorLog() as log:
        tokens = choose(logits, positions, NO_DRAFTS, rows.get(asking), counts).tokens
    assert set(log.names) <= {"aten::argmax", "aten::empty", "aten::resize_", "aten::as_strided"}, (
        "and the same batch uploads nothing"
    )
    assert torch.equal(tokens, logits.argmax(1))


def test_a_temperature_next_to_zero_is_zero():
    """Divided by it, all positive logits would be infinite, and the first of them be taken."""
    requests = [make(1, SamplingParams(temperature=1e-310), 1), make(2, SamplingParams(temperature=1.0), 2)]
    counts, logits = TokenCounts(num_slots=2, vocab_size=VOCAB, device=CPU), torch.randn(2, VOCAB).abs()
    rows = SamplingRows.of([(each, 1) for each in requests], VOCAB, CPU)
    tokens = choose(logits, torch.zeros(2, dtype=torch.int64), NO_DRAFTS, rows, counts).tokens
    assert tokens[0] == logits[0].argmax()
