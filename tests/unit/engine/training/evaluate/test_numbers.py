"""Bits a byte, repetition, steps and agreement: each against a plain sum over the same texts."""

from __future__ import annotations

import gzip
import lzma
import math

import numpy as np
import pytest
import torch

from dsv4_engine.engine import Engine
from dsv4_engine.request import FinishReason
from dsv4_engine.training.evaluate.agreement import compare, logits_of
from dsv4_engine.training.evaluate.bits import bits_a_byte
from dsv4_engine.training.evaluate.generation import Written, generations_of, write
from dsv4_engine.training.evaluate.settings import Settings
from dsv4_engine.training.evaluate.texts import Opening, openings
from made_up_texts import END_THINK, USER, chat, document
from serving import run

TEXTS = [np.array(tokens) for tokens in (document(90, 1), chat(40, 2), document(300, 3)[5:120])]


def plain_logits(subject, text) -> torch.Tensor:
    return logits_of(subject, dtype="float32", length=len(text))(text)


def test_bits_are_a_plain_sum_over_bytes_and_ends(subject):
    logprobs = [plain_logits(subject, text).double().log_softmax(-1) for text in TEXTS]
    told = [
        each[torch.arange(len(text) - 1), torch.from_numpy(text[1:])].numpy()
        for each, text in zip(logprobs, TEXTS, strict=True)
    ]
    bits = bits_a_byte(TEXTS, told, subject.alphabet)
    cost, content = 0.0, []
    for text, each in zip(TEXTS, logprobs, strict=True):
        spelt = b""
        for place in range(len(text) - 1):
            token = int(text[place + 1])
            if token in (USER, USER + 1, END_THINK):
                continue
            cost -= float(each[place, token]) / math.log(2)
            if token != 1:
                spelt += bytes([token - 2])
        content.append(spelt)
    size = sum(map(len, content))
    assert bits.bytes == size == 90 + (20 + 40) + 114 and bits.texts == 3
    assert bits.model.value == pytest.approx(cost / size, rel=1e-6)
    whole = b"".join(content)
    assert bits.gzip_whole == 8 * len(gzip.compress(whole, 9)) / size
    assert bits.lzma_whole == 8 * len(lzma.compress(whole, preset=9)) / size
    assert bits.gzip_each == 8 * sum(len(gzip.compress(each, 9)) for each in content) / size
    assert bits.lzma_each == 8 * sum(len(lzma.compress(each, preset=9)) for each in content) / size
    assert bits_a_byte([np.array([0, 1])], [np.zeros(1)], subject.alphabet) is None


def written(tokens: list[int], truth: list[int], lens: tuple[int, ...], *, ended: bool = False) -> Written:
    opening = Opening(0, np.array([0]), np.array(truth))
    return Written(opening=opening, tokens=np.array(tokens), accept_lens=lens, ended=ended)


def test_repetition_and_steps_by_hand(subject):
    def spelt(text: str) -> list[int]:
        return [byte + 2 for byte in text.encode()]

    texts = [
        written(spelt("a a a a a a a a"), [*spelt("a b c d e f g"), 1], (4, 4, 4, 2)),
        written([*spelt("xyzw"), 1], spelt("xyzwv" * 9), (3, 4), ended=True),
    ]
    result = generations_of(texts, subject.alphabet, num_drafts=3)
    # The first is compared over 14 tokens, 11 runs of which 2 differ; the second over 5, both of whose runs differ.
    assert result.distinct_tokens == (2 + 2) / 13 and result.held_out_tokens == 1
    # Seven words in the first, 4 runs; none in the second.
    assert (result.distinct_words, result.held_out_words) == (1 / 4, 1)
    assert (result.prompts, result.tokens, result.steps) == (2, 20, 6)
    assert result.tokens_per_step == 18 / 6 and result.drafts.length.value == 21 / 6
    assert (result.ended.value, result.held_out_ended) == (0.5, 0.5)
    plain = generations_of(texts, subject.alphabet, num_drafts=0)
    assert (plain.steps, plain.tokens_per_step, plain.drafts) == (18, 1, None)
    assert generations_of([], subject.alphabet, num_drafts=3) is None


def test_what_is_written_is_what_the_engine_serves(subject, held_out):
    settings = Settings(prompts=3, prefix=30, new_tokens=20, batch=2)
    chosen = openings(held_out["code"], subject.alphabet, count=3, prefix=30, new_tokens=20, seed=0)
    texts = write(subject, chosen, settings)
    prompts = [opening.prefix.tolist() for opening in chosen]
    plain = run(Engine(subject.options(num_drafts=0, context_len=60)), prompts, max_new_tokens=20, ignore_eos=False)
    for mine, served in zip(texts, plain, strict=True):
        assert mine.tokens.tolist() == list(served.tokens)
        assert mine.ended == (served.finish_reason is FinishReason.STOP)
        assert sum(mine.accept_lens) + 1 >= len(mine.tokens) > sum(mine.accept_lens[:-1]) + 1


def test_agreement_is_a_plain_comparison(subject):
    noise = torch.Generator().manual_seed(1)

    def noisy(text):
        logits = plain_logits(subject, text)
        return logits + 0.3 * torch.randn(logits.shape, generator=noise)

    kept = {len(text): (plain_logits(subject, text), noisy(text)) for text in TEXTS}
    found = compare(
        ("a", lambda text: kept[len(text)][0] + 5), ("b", lambda text: kept[len(text)][1]), TEXTS, subject.alphabet
    )
    ours, theirs = (torch.cat([kept[len(text)][i] for text in TEXTS]).double() for i in (0, 1))
    p, q = ours.softmax(-1), theirs.softmax(-1)
    assert found.positions == len(ours) == sum(map(len, TEXTS))
    assert found.divergence == pytest.approx(float((p * (p / q).log2()).sum(-1).mean()), rel=1e-6)
    assert found.argmax.value == float((ours.argmax(-1) == theirs.argmax(-1)).double().mean()) < 1
    gap = ((ours - ours.mean(-1, keepdim=True)) - (theirs - theirs.mean(-1, keepdim=True))).abs()
    assert (found.max_difference, found.mean_difference) == pytest.approx((float(gap.max()), float(gap.mean())))
    first, (ours, theirs) = TEXTS[0], kept[len(TEXTS[0])]
    told = theirs.log_softmax(-1)[:-1].double().numpy()
    alone = compare(("a", lambda _: ours), ("b", lambda _: theirs), [first], subject.alphabet)
    picked = told[np.arange(len(first) - 1), first[1:]]
    assert alone.other_bits == pytest.approx(bits_a_byte([first], [picked], subject.alphabet).model.value, rel=1e-5)
    same = compare(("a", lambda t: kept[len(t)][0]), ("a", lambda t: kept[len(t)][0]), TEXTS, subject.alphabet)
    assert (same.max_difference, same.divergence, same.argmax.value) == (0, 0, 1)
    assert compare(("a", noisy), ("b", noisy), [], subject.alphabet) is None


def test_bfloat16_is_near_and_not_equal(subject):
    other = logits_of(subject, dtype="bfloat16", length=120)
    found = compare(("fp32", lambda t: plain_logits(subject, t)), ("bf16", other), TEXTS, subject.alphabet)
    assert 0 < found.mean_difference < 0.2 and found.argmax.value > 0.9
