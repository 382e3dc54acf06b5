"""Rows of tokens for training, drawn so that a run that resumes at a step sees what it would have seen."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from dsv4_engine.errors import EngineError
from dsv4_engine.training.corpus.documents import BOS, NUM_SPECIALS, Documents

_NEWLINE = ord("\n") + NUM_SPECIALS
_BLANK = ord(" ") + NUM_SPECIALS
_KIND, _PLACE = 0, 1
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


class BatchSampler:
    """documents: by kind, each from BOS to EOS. weights: relative share of each kind's rows; kinds without documents
    are left out. length: tokens of a row. seed: 0 to 2**63 - 1.

    Every other row begins with BOS: a whole document where it fits into the row, else at its beginning or behind one of
    its empty lines, so that long documents are not known by their first lines alone. The others begin anywhere. A row
    that passes a document's end goes on with the next one of its kind. EngineError where no kind can be drawn.
    """

    def __init__(
        self, documents: Mapping[str, Documents], weights: Mapping[str, float], *, length: int, seed: int
    ) -> None:
        kinds = [kind for kind, own in documents.items() if len(own) and weights.get(kind, 0.0) > 0.0]
        if not kinds or length < 2:
            raise EngineError("there is nothing to draw rows from", hint="give documents, weights, and a length over 1")
        self.kinds = tuple(kinds)
        self._length, self._seed = length, seed
        if not 0 <= seed < 2**63:
            raise EngineError(f"{seed} is no seed of a sampler: 0 to 2**63 - 1")
        shares = np.array([weights[kind] for kind in kinds])
        self._bounds = np.cumsum(shares / shares.sum())[:-1]
        self._tokens = np.concatenate([documents[kind].tokens for kind in kinds])
        self._sizes = np.array([len(documents[kind].tokens) for kind in kinds], dtype=np.int64)
        self._bases = np.cumsum(self._sizes) - self._sizes
        self._openings = np.concatenate(
            [_openings(documents[kind], length) + base for kind, base in zip(kinds, self._bases, strict=True)]
        )

    def batch(self, step: int, rows: int) -> npt.NDArray[np.uint16]:
        """uint16 [rows, length]; a row depends on the seed, the step and its number alone."""
        row = np.arange(rows, dtype=np.int64)
        noise = _uniform(self._seed, step, row)
        kind = np.searchsorted(self._bounds, noise[_KIND], side="right")
        base, size = self._bases[kind], self._sizes[kind]
        place = base + np.minimum((noise[_PLACE] * size).astype(np.int64), size - 1)
        begins = (row + step) % 2 == 0
        opening = self._openings[np.searchsorted(self._openings, place, side="right") - 1]
        start = np.where(begins, opening, place) - base
        within = (start[:, None] + np.arange(self._length)) % size[:, None]
        batch = self._tokens[base[:, None] + within]
        batch[begins, 0] = BOS
        return batch


def _openings(documents: Documents, length: int) -> npt.NDArray[np.int64]:
    """Ascending places of what may stand where BOS belongs: a document's BOS, or in one that is longer than a row the
    last newline before a line that follows an empty one and is not indented.
    """
    tokens = documents.tokens
    newline = tokens == _NEWLINE
    opens = np.zeros(len(tokens), dtype=bool)
    ordinary = (tokens[2:] != _NEWLINE) & (tokens[2:] != _BLANK) & (tokens[2:] >= NUM_SPECIALS)
    opens[1:-1] = newline[:-2] & newline[1:-1] & ordinary
    lengths = np.diff(np.append(documents.starts, len(tokens)))
    opens &= np.repeat(lengths > length, lengths)
    opens[documents.starts] = True
    return np.flatnonzero(opens).astype(np.int64)


def _uniform(seed: int, step: int, row: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Two numbers of [0, 1) a row, float64 [2, rows], by mixing counters: no state, so any step can be asked for."""
    key = _mixed(np.array([seed], dtype=np.uint64)) ^ _mixed(_mixed(np.array([step], dtype=np.uint64) + _GOLDEN))
    key = _mixed(key + row.astype(np.uint64))
    drawn = np.stack([_mixed(key + (_GOLDEN << np.uint64(index))) for index in (_KIND, _PLACE)])
    return (drawn >> np.uint64(11)).astype(np.float64) / 2.0**53


def _mixed(value: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    """The finaliser of SplitMix64 (Steele, Lea, Flood, 2014): each bit of the input changes half of the output's."""
    mixed = (value ^ (value >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return mixed ^ (mixed >> np.uint64(31))
