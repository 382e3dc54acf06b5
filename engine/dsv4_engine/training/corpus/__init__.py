"""Texts that lie on most machines, as tokens for training: a Python's standard library and its documentation.

`python -m dsv4_engine.training.corpus FOLDER` writes `corpus.npz` and `manifest.json`; `load_corpus` reads them, and
`BatchSampler` draws rows from them. Needs numpy, not torch.
"""

from __future__ import annotations

from dsv4_engine.training.corpus.documents import Corpus, Documents, load_corpus
from dsv4_engine.training.corpus.manifest import Manifest
from dsv4_engine.training.corpus.prepare import prepare
from dsv4_engine.training.corpus.sampler import BatchSampler
from dsv4_engine.training.corpus.sources import Sources

__all__ = [
    "BatchSampler",
    "Corpus",
    "Documents",
    "Manifest",
    "Sources",
    "load_corpus",
    "prepare",
]
