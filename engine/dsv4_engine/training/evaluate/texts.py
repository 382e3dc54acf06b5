"""Which held-out texts are looked at: excerpts to read, and beginnings to go on from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt

from dsv4_engine.tokenizer import Tokenizer
from dsv4_engine.training.corpus import Documents

_LEAST_TRUTH = 8


@dataclass(frozen=True, eq=False)
class Alphabet:
    """What tokens stand for. byte: (V,) int64, the byte of a token or -1. end: (V,) bool, the end tokens."""

    byte: npt.NDArray[np.int64]
    end: npt.NDArray[np.bool_]

    @classmethod
    def of(cls, tokenizer: Tokenizer, *, vocab_size: int, eos_token_ids: Sequence[int]) -> Alphabet:
        spelt = [tokenizer.token_bytes(token) for token in range(vocab_size)]
        end = np.zeros(vocab_size, dtype=np.bool_)
        end[list(eos_token_ids)] = True
        return cls(np.array([each[0] if len(each) == 1 else -1 for each in spelt], dtype=np.int64), end)

    def text(self, tokens: npt.NDArray[np.int64]) -> bytes:
        """The bytes among the tokens; markers, begin and end are left out."""
        values = self.byte[tokens]
        return bytes(values[values >= 0].tolist())


@dataclass(frozen=True, eq=False)
class Excerpt:
    """tokens of a document, whose number it keeps: excerpts of one document are alike."""

    document: int
    tokens: npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Opening:
    """prefix: what a continuation begins with. truth: the document's own next tokens."""

    document: int
    prefix: npt.NDArray[np.int64]
    truth: npt.NDArray[np.int64]


def excerpts(documents: Documents, *, count: int, length: int, seed: int) -> list[Excerpt]:
    """Up to `count` pieces of up to `length` tokens that do not overlap, from as many documents as there are.

    A document is cut into consecutive pieces from its beginning on; each round takes one of every document, drawn. What
    is left at its end is a piece if it is at least half as long, or all that there is, of 2 tokens or more.
    """
    pieces = islice(_pieces(documents, length, seed), count)
    return [Excerpt(index, documents[index][start : start + length].astype(np.int64)) for index, start in pieces]


def openings(
    documents: Documents, alphabet: Alphabet, *, count: int, prefix: int, new_tokens: int, seed: int
) -> list[Opening]:
    """Up to `count` pieces as of `excerpts`, each cut after `prefix` tokens or a third of what is left of its document,
    whichever is less.

    A conversation is cut after its last marker instead, since the answer is to be written, and has one piece only.
    Pieces with fewer than 8 tokens left after the cut are passed over.
    """
    chosen: list[Opening] = []
    for index, start in _pieces(documents, prefix + new_tokens, seed):
        if len(chosen) == count:
            break
        document = documents[index].astype(np.int64)
        markers = np.flatnonzero((alphabet.byte[document] < 0) & ~alphabet.end[document])
        is_conversation = len(markers) and markers[-1]  # another one than the begin token
        if is_conversation and start:
            continue
        cut = int(markers[-1]) + 1 if is_conversation else start + max(1, min(prefix, (len(document) - start) // 3))
        if len(document) - cut >= _LEAST_TRUTH:
            chosen.append(Opening(index, document[start:cut], document[cut : cut + new_tokens]))
    return chosen


def _pieces(documents: Documents, length: int, seed: int) -> Iterator[tuple[int, int]]:
    """Document and first token of every piece, in the order of their use."""
    random = np.random.default_rng(seed)
    left = {}
    for index in range(len(documents)):
        size = len(documents[index])
        starts = [start for start in range(0, size, length) if start == 0 or size - start >= length / 2]
        if size > 1:
            left[index] = random.permutation(starts).tolist()
    while left:
        for index in random.permutation(list(left)).tolist():
            yield index, left[index].pop()
        left = {index: starts for index, starts in left.items() if starts}
