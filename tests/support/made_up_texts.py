"""Documents of a byte model's corpus, made up: words that repeat themselves now and then."""

from __future__ import annotations

import numpy as np

from dsv4_engine.training.corpus import Documents

USER, ASSISTANT, END_THINK = 258, 259, 261


def document(length: int, seed: int) -> list[int]:
    """BOS, `length` bytes, EOS."""
    random = np.random.default_rng(seed)
    words = [random.integers(97, 123, random.integers(2, 8)).tolist() for _ in range(12)]
    spelt: list[int] = []
    while len(spelt) < length:
        spelt += [*words[random.integers(len(words))], 32]
    return [0, *(byte + 2 for byte in spelt[:length]), 1]


def chat(length: int, seed: int) -> list[int]:
    """A question and an answer of `length` bytes."""
    return [0, USER, *document(20, seed)[1:-1], ASSISTANT, END_THINK, *document(length, seed + 1)[1:]]


def documents(*each: list[int]) -> Documents:
    return Documents.joined([np.array(tokens, dtype=np.uint16) for tokens in each])
