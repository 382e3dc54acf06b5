"""Text to token ids and back: a checkpoint's own tokenizer, or bytes for a model that has none."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from dsv4_engine.byte_level import spelt_bytes
from dsv4_engine.chat.markers import EOS, MARKERS, SPOKEN, Marker, Part
from dsv4_engine.checkpoint.configs import model_folder
from dsv4_engine.config import ModelConfig
from dsv4_engine.errors import EngineError

_BYTES = 256
_FILE = "tokenizer.json"
_REPLACEMENT = "\ufffd"
# A character that byte fallback spells has at most 4 tokens; what is still undecodable after these stays so.
_LONGEST_CHARACTER = 4


class TokenStream(Protocol):
    """Output tokens of one request as text, a token at a time and never half a character."""

    def push(self, token: int) -> str:
        """The text that is certain with this token; empty while a character is incomplete."""
        ...

    def flush(self) -> str:
        """What is left at the end: U+FFFD for a character that was never completed."""
        ...


class Tokenizer(Protocol):
    """`encode` begins with the model's begin token; `decode` leaves special tokens out, but for those of an answer's
    structure (<think>, </think>, DSML), which a reader of answers needs.
    """

    def encode(self, text: str) -> list[int]: ...

    def encode_parts(self, parts: Sequence[Part]) -> list[int]:
        """A rendered conversation, begin token first. Text that reads like a marker does not become one."""
        ...

    def decode(self, ids: Iterable[int]) -> str: ...

    def stream(self) -> TokenStream: ...

    def token_bytes(self, token: int) -> bytes:
        """What the token stands for by itself: perhaps half a character, and nothing for a special token."""
        ...


class ByteTokenizer:
    """UTF-8 bytes, each moved up past the special tokens, so that no byte of a prompt means begin or end.

    The conversation's markers have the ids behind the bytes where the vocabulary has room for all of them, else they
    are spelt out in bytes.
    """

    def __init__(self, *, bos_token_id: int, num_specials: int, eos_token_id: int = 1, vocab_size: int = 0) -> None:
        self._bos, self._offset = bos_token_id, num_specials
        first = num_specials + _BYTES
        names = [name for name in MARKERS if name != EOS]
        has_room = first + len(names) <= vocab_size
        self._markers = {name: first + index for index, name in enumerate(names)} if has_room else {}
        self._spoken = {self._markers[name]: name.encode() for name in SPOKEN if name in self._markers}
        self._markers[EOS] = eos_token_id

    def encode(self, text: str) -> list[int]:
        return [self._bos, *self._plain(text)]

    def encode_parts(self, parts: Sequence[Part]) -> list[int]:
        ids = [self._bos]
        for part in parts:
            token = self._markers.get(part.text) if isinstance(part, Marker) else None
            text = part.text if isinstance(part, Marker) else part
            ids += [token] if token is not None else self._plain(text)
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        """Ids that stand for no byte are left out; bytes that are no UTF-8 become U+FFFD."""
        return b"".join(map(self.token_bytes, ids)).decode("utf-8", errors="replace")

    def stream(self) -> TokenStream:
        return ByteStream(self)

    def token_bytes(self, token: int) -> bytes:
        byte = token - self._offset
        return bytes((byte,)) if 0 <= byte < _BYTES else self._spoken.get(token, b"")

    def _plain(self, text: str) -> list[int]:
        return [byte + self._offset for byte in text.encode("utf-8")]


class FileTokenizer:
    """A `tokenizer.json`. The begin token is put in front where the file itself does not."""

    def __init__(self, tokenizer: Any, *, bos_token_id: int, eos_token_id: int | None = None) -> None:
        self._tokenizer, self._bos = tokenizer, bos_token_id
        # Tokens that spell bytes, as those of the published DeepSeek-V4 tokenizer, can be told one by one.
        self._byte_level = type(tokenizer.decoder).__name__ == "ByteLevel"
        self._markers: dict[str, int | None] = {name: tokenizer.token_to_id(name) for name in MARKERS}
        if self._markers[EOS] is None:
            self._markers[EOS] = eos_token_id
        added = tokenizer.get_added_tokens_decoder()
        self._literal = {
            token: each.content.encode() if each.content in SPOKEN or not each.special else b""
            for token, each in added.items()
        }
        contents = sorted((re.escape(each.content) for each in added.values()), key=len, reverse=True)
        self._added = re.compile("|".join(contents)) if contents else None

    def encode(self, text: str) -> list[int]:
        ids = self._encoded(text, add_special_tokens=True)
        return ids if ids[:1] == [self._bos] else [self._bos, *ids]

    def encode_parts(self, parts: Sequence[Part]) -> list[int]:
        ids = [self._bos]
        for part in parts:
            token = self._markers.get(part.text) if isinstance(part, Marker) else None
            if token is not None:
                ids.append(token)
            elif isinstance(part, Marker):
                ids += self._encoded(part.text, add_special_tokens=False)
            else:
                for piece in self._without_added(part):
                    ids += self._encoded(piece, add_special_tokens=False)
        return ids

    def decode(self, ids: Iterable[int]) -> str:
        if self._byte_level:
            return b"".join(map(self.token_bytes, ids)).decode("utf-8", errors="replace")
        text, run = "", list[int]()
        for token in ids:
            if token in self._literal:
                text += self._run(run) + self._literal[token].decode()
                run = []
            else:
                run.append(token)
        return text + self._run(run)

    def stream(self) -> TokenStream:
        return ByteStream(self) if self._byte_level else DecodingStream(self)

    def token_bytes(self, token: int) -> bytes:
        if token in self._literal:
            return self._literal[token]
        if not self._byte_level:
            return self._run([token]).encode()
        spelling = self._tokenizer.id_to_token(token)
        return b"" if spelling is None else spelt_bytes(spelling)

    def _without_added(self, text: str) -> Iterator[str]:
        """The package finds added tokens in any text; of pieces that end inside of them it finds none."""
        start = 0
        while self._added is not None and (match := self._added.search(text, start)) is not None:
            cut = match.start() + 1
            yield text[start:cut]
            start = cut
        if start < len(text):
            yield text[start:]

    def _encoded(self, text: str, *, add_special_tokens: bool) -> list[int]:
        try:
            return list(self._tokenizer.encode(text, add_special_tokens=add_special_tokens).ids)
        except Exception as error:  # the package has no error type of its own
            raise EngineError(f"{_FILE} cannot encode the prompt: {error}", hint="download the file again") from error

    def _run(self, ids: list[int]) -> str:
        return str(self._tokenizer.decode(ids, skip_special_tokens=True)) if ids else ""


class ByteStream:
    """For tokens that spell bytes: a decoder that keeps an incomplete character until it is complete."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token: int) -> str:
        return self._decoder.decode(self._tokenizer.token_bytes(token))

    def flush(self) -> str:
        return self._decoder.decode(b"", final=True)


class DecodingStream:
    """For any tokenizer: what one more token adds to the text of those before it, decoded together.

    A token's text may depend on its neighbours (spaces between words), so the last ones that were told stay as context.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._context: list[int] = []
        self._waiting: list[int] = []

    def push(self, token: int) -> str:
        self._waiting.append(token)
        more = self._more()
        if more.endswith(_REPLACEMENT) and len(self._waiting) < _LONGEST_CHARACTER:
            return ""
        return self._told(more)

    def flush(self) -> str:
        return self._told(self._more()) if self._waiting else ""

    def _more(self) -> str:
        return self._tokenizer.decode([*self._context, *self._waiting])[len(self._tokenizer.decode(self._context)) :]

    def _told(self, text: str) -> str:
        self._context = [*self._context, *self._waiting][-2 * _LONGEST_CHARACTER :] if text else self._context
        self._waiting = [] if text else self._waiting[-_LONGEST_CHARACTER:]
        return text


def load_tokenizer(model: Path | str, config: ModelConfig) -> Tokenizer:
    """The tokenizer of a model that has one, else bytes; EngineError where the vocabulary is too small for bytes."""
    folder = model_folder(model)
    if folder is not None and (path := folder / _FILE).exists():
        return FileTokenizer(_read(path), bos_token_id=config.bos_token_id, eos_token_id=config.eos_token_ids[0])
    specials = max(config.bos_token_id, *config.eos_token_ids) + 1
    if specials + _BYTES > config.vocab_size:
        raise EngineError(
            f"{model} has no {_FILE}, and its vocabulary of {config.vocab_size} is no byte vocabulary",
            hint=f"put the model's {_FILE} into its folder",
        )
    return ByteTokenizer(
        bos_token_id=config.bos_token_id,
        num_specials=specials,
        eos_token_id=config.eos_token_ids[0],
        vocab_size=config.vocab_size,
    )


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
