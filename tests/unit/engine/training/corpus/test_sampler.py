"""Rows of training: a pure function of seed, step and row, in the right shares, and never across kinds."""

from __future__ import annotations

import numpy as np
import pytest

from dsv4_engine.errors import EngineError
from dsv4_engine.training.corpus import BatchSampler, Documents
from dsv4_engine.training.corpus.documents import BOS, EOS, byte_tokenizer

LENGTH = 40


def documents(*texts: str) -> Documents:
    tokenizer = byte_tokenizer()
    return Documents.joined(np.array([*tokenizer.encode(text), EOS], dtype=np.uint16) for text in texts)


LONG = "\n\n".join(f"a{index:03d} {'x' * 20}\n  indented\n\n  still{index:03d}" for index in range(200))
KINDS = {
    "long": documents(LONG),
    "short": documents(*(f"b{index:02d}" * (1 + index % 5) for index in range(50))),
    "never": documents("c" * 100),
}
WEIGHTS = {"long": 3.0, "short": 1.0, "never": 0.0, "absent": 1.0}


def sampler(seed: int = 5, **changes) -> BatchSampler:
    return BatchSampler(**{"documents": KINDS, "weights": WEIGHTS, "length": LENGTH, "seed": seed, **changes})


def text(row) -> str:
    return byte_tokenizer().decode(row.tolist())


def is_long(row) -> bool:
    return not set(text(row)) & set("b")


def test_a_row_depends_on_seed_step_and_its_number_alone():
    one, two = sampler(), sampler()
    later = [one.batch(step, 8) for step in range(5)][3]
    assert later.dtype == np.uint16 and later.shape == (8, LENGTH)
    assert np.array_equal(two.batch(3, 8), later)
    assert np.array_equal(two.batch(3, 20)[:8], later)
    assert not np.array_equal(two.batch(4, 8), later)
    assert not np.array_equal(sampler(seed=6).batch(3, 8), later)


def test_kinds_are_drawn_in_their_shares_and_not_mixed():
    rows = sampler().batch(0, 4000)
    assert not any("c" in text(row) for row in rows)
    assert 0.72 < np.mean([is_long(row) for row in rows]) < 0.78
    assert not any({"a", "b"} <= set(text(row)) for row in rows)


def test_every_other_row_begins_a_text():
    rows = sampler().batch(1, 400)
    assert (rows[1::2, 0] == BOS).all()
    assert 0 < (rows[0::2, 0] == BOS).sum() < 40  # by chance, where a document begins
    for row in rows[1::2]:
        assert text(row).startswith(("a", "b"))  # a document or a paragraph, never an indented line
    beginnings = {text(row)[:4] for row in rows[1::2] if is_long(row)}
    assert len(beginnings) > 50


def test_rows_are_passages_of_the_kind_that_run_on_into_the_next_document():
    whole = {kind: KINDS[kind].tokens.tolist() * 2 for kind in ("long", "short")}
    joined = {kind: "".join(map(chr, tokens)) for kind, tokens in whole.items()}
    for row in sampler().batch(2, 400):
        rest = "".join(map(chr, row[1:].tolist()))
        assert rest in joined["long" if is_long(row) else "short"]


def test_all_of_a_kind_is_seen():
    seen = {text(row)[:4] for step in range(200) for row in sampler().batch(step, 64)[step % 2 :: 2] if is_long(row)}
    assert {f"a{index:03d}" for index in range(200)} <= seen


def test_nothing_to_draw_from_is_an_error():
    for changes in ({"weights": {"never": 0.0}}, {"documents": {"long": documents()}}, {"length": 1}, {"seed": -1}):
        with pytest.raises(EngineError):
            sampler(**changes)
