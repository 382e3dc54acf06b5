"""Penalties against counting by hand, in single rows, in windows with drafts, and across steps."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dsv4_engine.request import Request, SamplingParams
from dsv4_engine.sampling.penalties import TokenCounts, draft_prefixes
from dsv4_engine.sampling.rows import SamplingRows

VOCAB = 11
CPU = torch.device("cpu")


def penalised_by_hand(logits, prompt, output, params: SamplingParams) -> list[float]:
    counts = Counter(output)
    values = []
    for token, value in enumerate(logits):
        if token in counts or token in prompt:
            value = value / params.repetition_penalty if value > 0 else value * params.repetition_penalty
        value -= params.frequency_penalty * counts[token]
        value -= params.presence_penalty * (counts[token] > 0)
        values.append(value)
    return values


def make(slot, prompt, params, output=()) -> Request:
    request = Request(
        id=slot, prompt=tuple(prompt), max_output=99, stop_ids=frozenset(), sampling=params, output=list(output)
    )
    request.slot, request.prefill_len = slot, len(request.tokens)
    return request


TOKENS = st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=8)
PARAMS = st.builds(
    SamplingParams,
    frequency_penalty=st.sampled_from([0, 0.5, -1.0]),
    presence_penalty=st.sampled_from([0, 1.5]),
    repetition_penalty=st.sampled_from([1, 1.3, 0.5]),
)


@settings(max_examples=40, deadline=None, derandomize=True)
@given(TOKENS, TOKENS, st.lists(TOKENS, max_size=3), PARAMS, st.integers(0, 2**31))
def test_windows_equal_counting_by_hand(prompt, output, windows, params, seed):
    """A request begins with some output already (it was retracted), then gains tokens window by window."""
    if not params.penalised:
        return
    counts = TokenCounts(num_slots=4, vocab_size=VOCAB, device=CPU)
    before, request = make(2, [1, 2, 3], params, [4, 4, 5]), make(2, prompt, params, output)
    counts.begin([before])
    counts.begin([request])
    output, generator = list(output), torch.Generator().manual_seed(seed)
    for drafts in [[], *windows]:
        window = torch.tensor([[output[-1], *drafts]])
        logits = torch.randn(window.numel(), VOCAB, generator=generator)
        rows = SamplingRows.of([(request, window.numel())], VOCAB, CPU)
        penalised = counts.penalise(logits, rows.penalised, draft_prefixes(window, VOCAB))
        for row in range(window.numel()):
            expected = penalised_by_hand(logits[row].tolist(), prompt, [*output, *drafts[:row]], params)
            assert torch.allclose(penalised[row], torch.tensor(expected), atol=1e-5)
        tokens = torch.randint(0, VOCAB, (window.numel(),), generator=generator)
        gained = 1 + seed % window.numel()
        counts.count(rows.penalised, tokens, torch.arange(window.numel()) < gained)
        output += tokens[:gained].tolist()


def test_only_rows_of_penalised_requests_change_and_pay():
    counts = TokenCounts(num_slots=4, vocab_size=VOCAB, device=CPU)
    plain, other = make(1, [1, 2], SamplingParams()), make(2, [1, 2], SamplingParams(repetition_penalty=2.0))
    counts.begin([plain])
    assert counts.produced is None
    counts.begin([plain, other])
    rows = SamplingRows.of([(plain, 1), (other, 1)], VOCAB, CPU)
    logits = torch.ones(2, VOCAB)
    penalised = counts.penalise(logits, rows.penalised, torch.empty(2, 0, dtype=torch.int64))
    assert torch.equal(penalised[0], logits[0])
    assert penalised[1].tolist() == [1, 0.5, 0.5, *[1] * 8]
    assert torch.equal(logits, torch.ones(2, VOCAB)), "the raw logits are still wanted for log-probabilities"


def test_what_is_not_kept_counts_nowhere_but_in_padding():
    counts = TokenCounts(num_slots=4, vocab_size=VOCAB, device=CPU)
    request = make(3, [1], SamplingParams(frequency_penalty=1.0))
    counts.begin([request])
    rows = SamplingRows.of([(request, 3)], VOCAB, CPU)
    counts.count(rows.penalised, torch.tensor([5, 5, 7]), torch.tensor([True, True, False]))
    assert counts.produced is not None
    assert counts.produced[3].tolist() == [0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0]
    assert counts.produced[1:3].sum() == 0


@pytest.mark.parametrize("width", [1, 2, 4])
def test_prefixes_are_the_drafts_before_each_row(width):
    windows = torch.arange(2 * width).view(2, width)
    prefixes = draft_prefixes(windows, 99)
    assert prefixes.shape == (2 * width, width - 1)
    for request in range(2):
        for row in range(width):
            named = [token for token in prefixes[request * width + row].tolist() if token != 99]
            assert named == windows[request, 1 : row + 1].tolist()
