"""Text to token ids and back: a checkpoint's own tokenizer, or bytes for a model that has none."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Protocol

from dsv4_engine.config import ModelConfig
from dsv4_engine.errors import EngineError

_BYTES = 256
_FILE = "tokenizer.json"


class Tokenizer(Protocol):
    """`encode` begins with the model's begin token; `decode` leaves special tokens out."""

    def encode(self, text: str) -> list[int]: ...

    def decode(self, ids: Iterable[int]) -> str: ...


class ByteTokenizer:
    """UTF-8 bytes, each moved up past the special tokens, so that no byte of a prompt means begin or end."""

    def __init__(self, *, bos_token_id: int, num_specials: int) -> None:
        self._bos, self._offset = bos_token_id, num_specials

    def encode(self, text: str) -> list[int]:
        return [self._bos, *(byte + self._offset for byte in text.encode("utf-8"))]

    def decode(self, ids: Iterable[int]) -> str:
        """Ids that stand for no byte are left out; bytes that are no UTF-8 become U+FFFD."""
        shifted = (token - self._offset for token in ids)
        return bytes(byte for byte in shifted if 0 <= byte < _BYTES).decode("utf-8", errors="replace")


class FileTokenizer:
    """A `tokenizer.json`. The begin token is put in front where the file itself does not."""

    def __init__(self, tokenizer: Any, *, bos_token_id: int) -> None:
        self._tokenizer, self._bos = tokenizer, bos_token_id

    def encode(self, text: str) -> list[int]:
        try:
            ids = list(self._tokenizer.encode(text).ids)
        except Exception as error:  # the package has no error type of its own
            raise EngineError(f"{_FILE} cannot encode the prompt: {error}", hint="download the file again") from error
        return ids if ids[:1] == [self._bos] else [self._bos, *ids]

    def decode(self, ids: Iterable[int]) -> str:
        return str(self._tokenizer.decode(list(ids), skip_special_tokens=True))


def load_tokenizer(model: Path | str, config: ModelConfig) -> Tokenizer:
    """The tokenizer of a checkpoint folder, else bytes; EngineError where the vocabulary is too small for bytes."""
    path = Path(model) / _FILE
    if path.exists():
        return FileTokenizer(_read(path), bos_token_id=config.bos_token_id)
    specials = max(config.bos_token_id, *config.eos_token_ids) + 1
    if specials + _BYTES > config.vocab_size:
        raise EngineError(
            f"{model} has no {_FILE}, and its vocabulary of {config.vocab_size} is no byte vocabulary",
            hint=f"put the model's {_FILE} into its folder",
        )
    return ByteTokenizer(bos_token_id=config.bos_token_id, num_specials=specials)


def _read(path: Path) -> Any:
    try:
        from tokenizers import Tokenizer as Reader
    except ImportError:
        raise EngineError(f"{path} needs the package tokenizers", hint="pip install tokenizers") from None
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise EngineError(f"{path} cannot be read: {error}", hint="download the file again") from None
    try:
        return Reader.from_str(text)
    except Exception as error:  # the package has no error type of its own
        raise EngineError(f"{path} is no tokenizer: {error}", hint="download the file again") from error
