"""Loops are found where they are, and unlearned where the model made them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dsv4_engine.engine import Engine
from dsv4_engine.options import EngineOptions
from dsv4_engine.training import repetition
from dsv4_engine.training.options import Stage, TrainingOptions
from dsv4_engine.training.repetition import OwnContinuations, UnlikelihoodTrainee, continued, repeats, word_starts

STAGE = Stage(sparse=True, drafts=3, quantised=False)
PROMPT = 128


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 3), min_size=1, max_size=40), st.integers(1, 6))
def test_repeats_are_spans_that_stood_earlier_in_the_row(row, span):
    found = repeats(torch.tensor([row]), span)[0].tolist()
    for end in range(len(row)):
        here = row[end - span + 1 : end + 1] if end + 1 >= span else None
        earlier = [row[other - span + 1 : other + 1] for other in range(span - 1, end)]
        assert found[end] == (here is not None and here in earlier)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 2), min_size=1, max_size=40), st.integers(1, 5), st.integers(1, 8))
def test_short_periods_are_repeats_of_what_ended_shortly_before(row, span, within):
    found = repeats(torch.tensor([row]), span, within=within)[0].tolist()
    for end in range(len(row)):
        others = range(max(span - 1, end - within), end)
        here = row[end - span + 1 : end + 1]
        assert found[end] == (end + 1 >= span and any(row[o - span + 1 : o + 1] == here for o in others))


def test_a_batch_mixes_short_prompts_and_long_ones_up_to_half_a_row():
    lengths = repetition.prompt_lengths(16, 257)
    assert lengths[:8] == lengths[8:] == sorted(lengths[:8]) and len(set(lengths)) == 8
    assert lengths[0] < 20 and lengths[7] == 128
    assert min(repetition.prompt_lengths(4, 9)) >= 1


def test_words_start_behind_what_is_no_word():
    word = repetition.byte_tokens(repetition._WORD, 320, first_byte=2)
    text = b"a_b1  x.y\n\n    if 9:"
    starts = word_starts(torch.tensor([[byte + 2 for byte in text]]), word)[0]
    assert [chr(byte) for byte, begins in zip(text, starts.tolist(), strict=True) if begins] == list("axyi9")


def looping_row(length: int) -> list[int]:
    text = b"self.value = value\n        " * 40
    return [byte + 2 for byte in text[:length]]


@pytest.fixture
def trainee(model, monkeypatch) -> UnlikelihoodTrainee:
    monkeypatch.setattr(repetition, "prompt_lengths", lambda rows, length: [PROMPT] * rows)
    return UnlikelihoodTrainee(model, TrainingOptions(), first_byte=2, weight=1.0)


def test_what_is_unlearned_lies_behind_the_prompt_and_before_the_end(trainee):
    real = torch.randint(2, 250, (1, 257), generator=torch.Generator().manual_seed(0))
    loop = torch.tensor([looping_row(257)])
    ended = loop.clone()
    ended[0, PROMPT + 40] = 1
    ended[0, PROMPT + 41 :] = real[0, PROMPT + 41 :]
    silent = trainee.losses(torch.cat((real, real)), STAGE)
    whole = trainee.losses(torch.cat((real, loop)), STAGE)
    cut = trainee.losses(torch.cat((real, ended)), STAGE)
    assert silent["unlikelihood"] == 0
    assert whole["unlikelihood"] > 0 and whole["repeated"] > 0.9
    assert cut["repeated"] == 1, "words behind the end count neither as repeated nor as words"
    ended[0, PROMPT] = 1
    assert trainee.losses(torch.cat((real, ended)), STAGE)["unlikelihood"] == 0


@pytest.mark.parametrize(("text", "counts"), [(b"6" * 257, True), (b"'', " * 70, True), (b" " * 257, False)])
def test_short_periods_are_unlearned_byte_by_byte_but_no_indentation(trainee, text, counts):
    real = torch.randint(2, 250, (1, 257), generator=torch.Generator().manual_seed(0))
    drum = torch.tensor([[byte + 2 for byte in text[:257]]])
    assert (trainee.losses(torch.cat((real, drum)), STAGE)["unlikelihood"] > 0) == counts


def test_one_step_makes_the_repeated_words_less_likely(trainee, model):
    real = torch.randint(2, 250, (1, 257), generator=torch.Generator().manual_seed(0))
    batch = torch.cat((real, torch.tensor([looping_row(257)])))
    before = trainee.losses(batch, STAGE)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)
    loss = before["loss"] - before["main"]
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    assert trainee.losses(batch, STAGE)["unlikelihood"] < before["unlikelihood"]


class Rows:
    def batch(self, step: int, rows: int) -> np.ndarray:
        return np.random.default_rng(step).integers(2, 250, (rows, 49)).astype(np.uint16)


def test_continuations_are_the_served_model_s_greedy_text():
    rows = Rows().batch(5, 3)
    written = continued("dsv4-tiny", rows, 3)
    for row, original, size in zip(written, rows, repetition.prompt_lengths(3, 49), strict=True):
        assert (row[:size] == original[:size]).all()
        engine = Engine(EngineOptions(model="dsv4-tiny", num_drafts=0, max_requests=1))
        request = engine.add(original[:size].tolist(), max_new_tokens=49 - size)
        while engine.has_work:
            engine.step()
        tokens = list(engine.result(request).tokens)
        assert row[size : size + len(tokens)].tolist() == tokens
        assert row[size + len(tokens) :].tolist() == original[size + len(tokens) :].tolist()


def test_batches_are_half_real_and_half_the_model_s_own():
    real = Rows()
    batches = OwnContinuations("dsv4-tiny", real, rows=2, steps=range(4, 6))
    batch = batches.batch(5, 5)
    assert batch.shape == (5, 49)
    assert (batch[:3] == real.batch(5, 3)).all()
    assert (batches.batch(4, 5)[3:] != batch[3:]).any()
    assert (batches.batch(6, 5)[3:] == batch[3:]).all(), "what is fetched ahead and never used"
