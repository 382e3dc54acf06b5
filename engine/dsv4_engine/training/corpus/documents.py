"""Documents as token arrays, in memory and in `corpus.npz`."""

from __future__ import annotations

import hashlib
import json
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dsv4_engine.config import ModelConfig
from dsv4_engine.errors import EngineError
from dsv4_engine.tokenizer import ByteTokenizer, Tokenizer
from dsv4_engine.training.corpus.manifest import MANIFEST, Manifest

BOS, EOS, NUM_SPECIALS, VOCAB_SIZE = 0, 1, 2, 320
"""Of the byte vocabulary with room for the conversation's markers."""

CORPUS = "corpus.npz"
SPLITS = ("train", "held_out")


def byte_tokenizer() -> ByteTokenizer:
    """What the server takes for a checkpoint of this vocabulary that has no tokenizer.json."""
    return ByteTokenizer(bos_token_id=BOS, num_specials=NUM_SPECIALS, eos_token_id=EOS, vocab_size=VOCAB_SIZE)


def require_same_tokens(model: str, config: ModelConfig, tokenizer: Tokenizer) -> None:
    """EngineError unless a model's token ids mean what they mean in a corpus."""
    spelt = [bytes([byte]) for byte in range(256)]
    first = config.bos_token_id == BOS and EOS in config.eos_token_ids and config.vocab_size >= VOCAB_SIZE
    if not first or [tokenizer.token_bytes(NUM_SPECIALS + byte) for byte in range(256)] != spelt:
        raise EngineError(
            f"the tokens of {model} are not those of the corpus",
            hint=f"begin is {BOS}, end {EOS}, then come 256 bytes and a conversation's markers; {VOCAB_SIZE} in all",
        )


@dataclass(frozen=True)
class Documents:
    """tokens: uint16 [n], the documents one after another, each from BOS to EOS. starts: int64 [documents], where each
    begins.
    """

    tokens: npt.NDArray[np.uint16]
    starts: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, index: int) -> npt.NDArray[np.uint16]:
        """One document's tokens, uint16 [length]."""
        end = self.starts[index + 1] if index + 1 < len(self) else len(self.tokens)
        return self.tokens[self.starts[index] : end]

    @property
    def sha256(self) -> str:
        """Of the tokens as little-endian uint16."""
        return hashlib.sha256(self.tokens.astype("<u2").tobytes()).hexdigest()

    @staticmethod
    def joined(documents: Iterable[npt.NDArray[np.uint16]]) -> Documents:
        pieces = list(documents)
        lengths = np.array([0, *map(len, pieces)], dtype=np.int64)
        tokens = np.concatenate(pieces) if pieces else np.zeros(0, dtype=np.uint16)
        return Documents(tokens, np.cumsum(lengths)[:-1])


@dataclass(frozen=True)
class Corpus:
    """train and held_out: documents by kind (the same kinds). weights: each kind's share of the rows of training."""

    train: Mapping[str, Documents]
    held_out: Mapping[str, Documents]
    weights: Mapping[str, float]

    @property
    def sha256(self) -> str:
        """Of all that decides what a run on it sees."""
        parts = [{kind: own.sha256 for kind, own in split.items()} for split in (self.train, self.held_out)]
        return hashlib.sha256(json.dumps([*parts, dict(self.weights)]).encode()).hexdigest()


def save_documents(splits: Mapping[str, Mapping[str, Documents]], folder: Path) -> None:
    """Writes `SPLIT/KIND/tokens` and `SPLIT/KIND/starts` into the folder's `corpus.npz`."""
    arrays: dict[str, npt.NDArray[np.uint16] | npt.NDArray[np.int64]] = {}
    for split, kinds in splits.items():
        for kind, documents in kinds.items():
            arrays[f"{split}/{kind}/tokens"] = documents.tokens
            arrays[f"{split}/{kind}/starts"] = documents.starts
    np.savez_compressed(folder / CORPUS, **arrays)  # type: ignore[arg-type]


def load_corpus(folder: Path | str) -> Corpus:
    """What `prepare` wrote; EngineError where it is missing, damaged or of another manifest."""
    path = Path(folder) / CORPUS
    manifest = Manifest.read(Path(folder) / MANIFEST)
    splits: dict[str, dict[str, Documents]] = {split: {} for split in SPLITS}
    try:
        with np.load(path, allow_pickle=False) as arrays:
            for split in SPLITS:
                for kind in manifest.weights:
                    tokens, starts = arrays[f"{split}/{kind}/tokens"], arrays[f"{split}/{kind}/starts"]
                    splits[split][kind] = Documents(tokens, starts)
    except (OSError, EOFError, KeyError, ValueError, TypeError, zipfile.BadZipFile, zlib.error) as error:
        raise EngineError(f"{path} cannot be read: {error}", hint="prepare the corpus again") from None
    told = {(part.split, part.kind): (part.documents, part.sha256) for part in manifest.parts}
    for split, kinds in splits.items():
        for kind, own in kinds.items():
            if told.get((split, kind)) != (len(own), own.sha256):
                raise EngineError(
                    f"{path} and {MANIFEST} tell of different tokens ({split}/{kind})",
                    hint="prepare the corpus again",
                )
    return Corpus(splits["train"], splits["held_out"], manifest.weights)
