"""What the engine wrote, for people to read: one line of JSON a request in the session's folder.

Kept only where it is asked for, because a session is something to send to others, and texts are not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from dsv4prof.recorder.atomic import write_atomic

OUTPUTS_NAME = "outputs.jsonl"
# What one replica has served, until the leader puts all of it together.
_PART = ".outputs-{replica}.jsonl"


class Decoder(Protocol):
    """A tokenizer, as far as it is needed here."""

    def decode(self, ids: Sequence[int], /) -> str: ...


class RequestOutput(msgspec.Struct, frozen=True, kw_only=True):
    """One request of the timed pass. A run serves past an end token; `text` is what stands before the first one, and
    `ended` says whether there was one. `tokens` are all that were made.
    """

    request: int
    prompt: str
    text: str
    ended: bool
    tokens: list[int]


def as_texts(
    outputs: Mapping[int, Sequence[int]],
    prompts: Sequence[Sequence[int]],
    decoder: Decoder,
    end_tokens: Sequence[int],
) -> list[RequestOutput]:
    """`outputs` by the number of their prompt, as text."""
    made = []
    for number, tokens in sorted(outputs.items()):
        end = next((place for place, token in enumerate(tokens) if token in end_tokens), None)
        made.append(
            RequestOutput(
                request=number,
                prompt=decoder.decode(prompts[number]),
                text=decoder.decode(tokens[:end]),
                ended=end is not None,
                tokens=list(tokens),
            )
        )
    return made


def write_part(folder: Path, replica: int, outputs: Sequence[RequestOutput]) -> None:
    """Leave what one replica has served; OSError where that cannot be written."""
    write_atomic(folder / _PART.format(replica=replica), _lines(outputs))


def join_parts(folder: Path) -> None:
    """All replicas' outputs in one file, in the order of the requests; nothing where there are none."""
    parts = sorted(folder.glob(_PART.format(replica="*")))
    outputs = [output for part in parts for output in _read(part)]
    if outputs:
        write_atomic(folder / OUTPUTS_NAME, _lines(sorted(outputs, key=lambda output: output.request)))
    for part in parts:
        part.unlink()


def read_outputs(folder: Path) -> list[RequestOutput]:
    """What a session keeps of texts, by request; empty where none was asked for."""
    path = folder / OUTPUTS_NAME
    return _read(path) if path.exists() else []


def _read(path: Path) -> list[RequestOutput]:
    return msgspec.json.Decoder(RequestOutput).decode_lines(path.read_bytes())


def _lines(outputs: Sequence[RequestOutput]) -> bytes:
    return msgspec.json.Encoder().encode_lines(outputs)
