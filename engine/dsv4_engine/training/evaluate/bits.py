"""Bits a byte: what the model pays for held-out text, and what compressors pay."""

from __future__ import annotations

import gzip
import lzma
import math
from collections.abc import Callable, Hashable, Sequence

import numpy as np
import numpy.typing as npt

from dsv4_engine.training.evaluate.results import Bits
from dsv4_engine.training.evaluate.statistics import mean_of
from dsv4_engine.training.evaluate.teacher import Tokens
from dsv4_engine.training.evaluate.texts import Alphabet

_LEVEL = 9


def bits_a_byte(
    texts: Sequence[Tokens],
    logprobs: Sequence[npt.NDArray[np.float64]],
    alphabet: Alphabet,
    *,
    clusters: Sequence[Hashable] | None = None,
) -> Bits | None:
    """logprobs: (L - 1,) of each text's tokens after the first; the rule is that of `Bits`. clusters: each text's
    document. None without any byte.
    """
    costs, counts, contents = [], [], []
    for tokens, known in zip(texts, logprobs, strict=True):
        told = tokens[1:]
        is_byte = alphabet.byte[told] >= 0
        costs.append(-float(known[is_byte | alphabet.end[told]].sum()) / math.log(2))
        counts.append(int(is_byte.sum()))
        contents.append(alphabet.text(told))
    model = mean_of(costs, counts, clusters=clusters)
    if model is None:
        return None
    size = sum(counts)
    return Bits(
        model=model,
        texts=len(texts),
        bytes=size,
        gzip_each=_packed(_gzip, contents) / size,
        gzip_whole=_packed(_gzip, [b"".join(contents)]) / size,
        lzma_each=_packed(_lzma, contents) / size,
        lzma_whole=_packed(_lzma, [b"".join(contents)]) / size,
    )


def _gzip(content: bytes) -> bytes:
    return gzip.compress(content, _LEVEL, mtime=0)


def _lzma(content: bytes) -> bytes:
    return lzma.compress(content, preset=_LEVEL)


def _packed(pack: Callable[[bytes], bytes], contents: Sequence[bytes]) -> int:
    """Bits of all, headers included, as in a file."""
    return 8 * sum(len(pack(content)) for content in contents)
