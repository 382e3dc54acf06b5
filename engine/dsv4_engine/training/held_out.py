"""The held-out batches that a run looks at now and then: the same in every run of equal row length."""

from __future__ import annotations

from typing import Any

import numpy as np

from dsv4_engine.training.corpus import BatchSampler, Corpus
from dsv4_engine.training.options import TrainingOptions

_ROWS, _BATCHES, _SEED = 16, 2, 1


def held_out_batches(corpus: Corpus, options: TrainingOptions) -> dict[str, list[np.ndarray[Any, Any]]]:
    """By kind of text, batches (rows, length + 1) of at most 16 rows; kinds without held-out documents are left out."""
    rows = min(_ROWS, options.rows)
    samplers = {
        kind: BatchSampler({kind: documents}, {kind: 1.0}, length=options.length + 1, seed=_SEED)
        for kind, documents in corpus.held_out.items()
        if len(documents)
    }
    return {kind: [own.batch(step, rows) for step in range(_BATCHES)] for kind, own in samplers.items()}
