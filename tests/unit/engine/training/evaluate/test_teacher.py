"""Reading with steps tried on the way equals reading alone; each step equals that of a server with this prompt."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dsv4_engine.engine import Engine
from dsv4_engine.phase import Phase
from dsv4_engine.training.evaluate.teacher import read_texts
from engine_batches import make_batch, poison
from made_up_texts import chat, document

CPU = torch.device("cpu")
DRAFTS = 3
LENGTH = 150


@pytest.fixture(scope="module")
def texts(subject):
    """Documents of all lengths, and what the model itself would write, of which its drafts know something."""
    engine = Engine(subject.options(num_drafts=0, context_len=LENGTH))
    own = engine.add(document(10, 25)[:9], max_new_tokens=LENGTH, ignore_eos=True)
    while engine.has_work:
        engine.step()
    made = (document(330, 21), document(2, 22), document(137, 23), chat(60, 24), [0, 77], engine.result(own).tokens)
    return [np.array(tokens) for tokens in made]


@pytest.fixture(scope="module")
def runner(subject, texts):
    return subject.runner(slots=len(texts), context_len=340, num_drafts=DRAFTS)


@pytest.fixture(scope="module")
def readings(runner, texts):
    poison(runner)
    return read_texts(runner, texts, device=CPU, num_drafts=DRAFTS, stride=11, seed=3)


def test_probabilities_are_those_of_one_pass(subject, texts, readings):
    alone = subject.runner(slots=1, context_len=340)
    for text, reading in zip(texts, readings, strict=True):
        batch = make_batch((1, 0, torch.from_numpy(text)))
        logprobs = alone.forward_target(batch).logits.double().log_softmax(-1)
        expected = logprobs[torch.arange(len(text) - 1), torch.from_numpy(text[1:])]
        assert reading.logprobs.shape == (len(text) - 1,)
        assert np.abs(reading.logprobs - expected.numpy()).max() < 1e-4


def test_steps_are_tried_at_regular_places_with_room_on_both_sides(texts, readings):
    for text, reading in zip(texts, readings, strict=True):
        assert len(reading.positions) == len(reading.accept_lens) == len(reading.text_lens)
        assert all(b - a == 11 for a, b in zip(reading.positions, reading.positions[1:], strict=False))
        assert all(position >= 1 and position + DRAFTS < len(text) for position in reading.positions)
        if len(text) > 20:
            assert reading.positions[0] <= 11 and reading.positions[-1] + 11 + DRAFTS >= len(text)
    assert len({reading.positions[0] for reading in readings if reading.positions}) > 1


def test_each_step_is_that_of_a_server_with_this_prompt(subject, texts, readings):
    engine = Engine(subject.options(num_drafts=DRAFTS, context_len=360, max_requests=8, radix=False))
    compared = []
    for text, reading in zip(texts, readings, strict=True):
        for position, gained in zip(reading.positions, reading.accept_lens, strict=True):
            prompt = text[: position + 1].tolist()
            compared.append((engine.add(prompt, max_new_tokens=DRAFTS + 2, ignore_eos=True), gained))
    while engine.has_work:
        engine.step()
    assert [engine.result(request).accept_lens[0] for request, _ in compared] == [gained for _, gained in compared]
    assert len(compared) > 40 and len({gained for _, gained in compared}) == DRAFTS + 1


def test_drafts_against_the_text_are_a_chain_from_the_text(subject, texts, readings):
    """One position after another, from nothing: the target over the text, the MTP layer over it, and its chain."""
    runner = subject.runner(slots=1, context_len=340, num_drafts=DRAFTS)
    seen = set()
    for text, reading in zip(texts, readings, strict=True):
        for position, matched in list(zip(reading.positions, reading.text_lens, strict=True))[::3]:
            poison(runner)
            ids = torch.from_numpy(text)
            streams = runner.forward_target(make_batch((1, 0, ids[: position + 1]))).streams[:position]
            output = runner.forward_mtp(make_batch((1, 0, ids[1 : position + 1])), streams)
            drafts = [int(output.logits[-1].argmax())]
            while len(drafts) < DRAFTS:
                fed = make_batch((1, position - 1 + len(drafts), torch.tensor(drafts[-1:])), phase=Phase.DRAFT)
                output = runner.forward_mtp(fed, output.streams[-1:])
                drafts.append(int(output.logits[-1].argmax()))
            right = [a == b for a, b in zip(drafts, text[position + 1 :].tolist(), strict=False)]
            assert matched == 1 + [*right, False].index(False)
            seen.add(matched)
    assert len(seen) > 1, "nothing was ever right: the test would not notice much"


def test_places_of_drafts_do_not_depend_on_what_is_read_beside(runner, texts, readings):
    for index in (0, 3, 5):
        (alone,) = read_texts(runner, [texts[index]], device=CPU, num_drafts=DRAFTS, stride=7, seed=index)
        together = read_texts(runner, texts[index:], device=CPU, num_drafts=DRAFTS, stride=7, seed=index)[0]
        assert alone.positions == together.positions
        assert (alone.accept_lens, alone.text_lens) == (together.accept_lens, together.text_lens)


def test_without_drafts_a_text_is_only_read(runner, texts, readings):
    for with_drafts, plain in zip(readings, read_texts(runner, texts, device=CPU, stride=50), strict=True):
        assert plain.positions == plain.accept_lens == plain.text_lens == ()
        assert np.abs(plain.logprobs - with_drafts.logprobs).max() < 1e-4
