"""What a corpus was made of, written beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from dsv4_engine.errors import EngineError

MANIFEST = "manifest.json"
_FORMAT = 1
_HINT = "python -m dsv4_engine.training.corpus FOLDER makes one"


@dataclass(frozen=True)
class Source:
    """files and num_bytes: of what was taken, before it was normalised into documents."""

    name: str
    version: str
    licence: str
    files: int
    num_bytes: int


@dataclass(frozen=True)
class Part:
    """One kind of one split. num_bytes: of text; tokens: with begin and end. sha256: of the tokens, little-endian
    uint16.
    """

    split: str
    kind: str
    documents: int
    tokens: int
    num_bytes: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """weights: each kind's share of the training rows, in sum 1. left_out: files that were not taken, by reason."""

    sources: tuple[Source, ...]
    parts: tuple[Part, ...]
    weights: Mapping[str, float]
    left_out: Mapping[str, int]

    def write(self, path: Path) -> None:
        text = json.dumps({"format": _FORMAT, **asdict(self)}, indent=2, ensure_ascii=False)
        path.write_text(text + "\n", encoding="utf-8")

    @staticmethod
    def read(path: Path) -> Manifest:
        """EngineError for a file that is missing or not such a manifest."""
        try:
            fields = json.loads(path.read_text(encoding="utf-8"))
            if fields["format"] != _FORMAT:
                raise EngineError(f"{path} is of format {fields['format']}", hint="prepare the corpus again")
            return Manifest(
                sources=tuple(Source(**source) for source in fields["sources"]),
                parts=tuple(Part(**part) for part in fields["parts"]),
                weights={str(kind): float(weight) for kind, weight in fields["weights"].items()},
                left_out={str(reason): int(files) for reason, files in fields["left_out"].items()},
            )
        except FileNotFoundError:
            raise EngineError(f"{path.parent} holds no corpus: it has no {path.name}", hint=_HINT) from None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise EngineError(f"{path} is no manifest of a corpus: {error}", hint=_HINT) from None
