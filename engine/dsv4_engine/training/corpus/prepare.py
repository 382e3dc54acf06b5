"""From the sources' files to `corpus.npz` and `manifest.json`."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dsv4_engine.chat.markers import Part as Piece
from dsv4_engine.errors import EngineError
from dsv4_engine.training.corpus.chats import conversations, rendered
from dsv4_engine.training.corpus.documents import (
    CORPUS,
    EOS,
    NUM_SPECIALS,
    SPLITS,
    Documents,
    byte_tokenizer,
    save_documents,
)
from dsv4_engine.training.corpus.functions import Function, functions_of
from dsv4_engine.training.corpus.manifest import MANIFEST, Manifest, Part, Source
from dsv4_engine.training.corpus.selection import Chosen, select
from dsv4_engine.training.corpus.sources import DOCS, LICENCE, STDLIB, Sources, read_sources
from dsv4_engine.training.corpus.stable import stable_number

WEIGHTS: Mapping[str, float] = {"code": 0.36, "prose": 0.28, "functions": 0.2, "tests": 0.1, "chat": 0.06}
"""Each kind's share of the training rows, where the corpus has all of them."""

_UNDOCUMENTED_SHARE = 2
"""One of so many functions without a docstring is taken."""


def prepare(sources: Sources, folder: Path) -> Manifest:
    """Writes the corpus into a folder, which is made; the same sources give the same tokens, byte for byte.

    EngineError where the sources hold nothing to train on, or the folder cannot be written.
    """
    selection = select(read_sources(sources))
    seen: set[str] = set()  # training comes first, so that no function it shows is held out of it
    splits = {
        split: _documents([file for file in selection.files if file.held_out == (split == "held_out")], seen)
        for split in SPLITS
    }
    joined = {
        split: {kind: Documents.joined(map(_tokens, texts)) for kind, texts in kinds.items()}
        for split, kinds in splits.items()
    }
    kinds = [kind for kind in WEIGHTS if len(joined["train"][kind])]
    if not kinds:
        raise EngineError(f"{sources.stdlib} holds no text to train on", hint="give another --stdlib")
    manifest = Manifest(
        sources=_sources(sources, selection.files),
        parts=tuple(_part(split, kind, joined[split][kind]) for split in SPLITS for kind in kinds),
        weights=_weights(kinds),
        left_out=selection.left_out,
    )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Beside the corpus that may be there, which is lost only to a whole one.
        with tempfile.TemporaryDirectory(dir=folder, prefix="new-") as new:
            save_documents({split: {kind: joined[split][kind] for kind in kinds} for split in SPLITS}, Path(new))
            manifest.write(Path(new) / MANIFEST)
            for name in (CORPUS, MANIFEST):
                (Path(new) / name).replace(folder / name)
    except OSError as error:
        raise EngineError(
            f"{folder} cannot be written: {error.strerror or error}", hint="choose another folder"
        ) from None
    return manifest


def _documents(files: Sequence[Chosen], seen: set[str]) -> dict[str, list[tuple[Piece, ...]]]:
    """Of one split, by kind: what each document holds between begin and end.

    seen: functions that were met before, which are not taken again; those of these files are added.
    """
    found: dict[str, list[tuple[Piece, ...]]] = {kind: [] for kind in WEIGHTS}
    for file in files:
        found[file.kind].append((file.text,))
        if file.kind == "code":
            new = {function.source: function for function in functions_of(file.text) if function.source not in seen}
            seen.update(new)
            kept = [function for function in new.values() if _is_kept(function)]
            found["functions"] += [(function.source,) for function in kept]
            found["chat"] += [rendered(messages) for messages in conversations(kept)]
    return found


def _is_kept(function: Function) -> bool:
    return bool(function.purpose) or stable_number(function.source) % _UNDOCUMENTED_SHARE == 0


def _tokens(parts: tuple[Piece, ...]) -> npt.NDArray[np.uint16]:
    ids = byte_tokenizer().encode_parts(parts)
    return np.array(ids if ids[-1] == EOS else [*ids, EOS], dtype=np.uint16)


def _weights(kinds: Iterable[str]) -> dict[str, float]:
    """Of the kinds that there are, in sum 1."""
    present = {kind: WEIGHTS[kind] for kind in kinds}
    total = sum(present.values())
    return {kind: weight / total for kind, weight in present.items()}


def _sources(sources: Sources, files: Sequence[Chosen]) -> tuple[Source, ...]:
    versions = {STDLIB: sources.stdlib_version, DOCS: sources.docs_version}
    found = []
    for name, version in versions.items():
        own = [file for file in files if file.source == name]
        if own:
            found.append(Source(name, version, LICENCE, len(own), sum(file.num_bytes for file in own)))
    return tuple(found)


def _part(split: str, kind: str, documents: Documents) -> Part:
    tokens = documents.tokens
    num_bytes = int(np.count_nonzero((tokens >= NUM_SPECIALS) & (tokens < NUM_SPECIALS + 256)))
    return Part(split, kind, len(documents), len(tokens), num_bytes, documents.sha256)
