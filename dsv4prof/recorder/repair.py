"""Kineto pastes names into its JSON unescaped and reports success; a file is trusted only after it was read back.

One annotation with a quote or a backslash in its name makes the whole trace unreadable for every viewer
(pytorch #146900, kineto #1459), and so does a thread's name that was cut inside a character. The damage is local to a
name, so it can be mended in the text. The check runs beside a serving program: it holds the interpreter for a piece of
the file at a time. The rare repair reads the whole file, and its search holds the interpreter for seconds in a big one.
"""

from __future__ import annotations

import codecs
import json
import mmap
import re
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec

# Kineto writes a slice's name between its category and its pid; a name may span lines.
_NAME = re.compile(rb'("cat": "[^"]*",\s*"name": ")(.*?)(",\s*"pid": )', re.DOTALL)
# The names of processes and threads, which are the system's.
_LABEL = re.compile(rb'("args": \{\s*"(?:name|labels)": ")(.*?)("\s*\}\s*\})', re.DOTALL)
# Where Kineto ends one event and begins the next. Inside a string it cannot be: a string holds no raw newline.
_SEAM = b"},\n  {\n"
# Small enough for a cache, and for a program that waits for the interpreter meanwhile.
_PIECE = 1 << 18
# A file of another form is not cut, and must not be piled up.
_LONGEST = 32 * _PIECE
_INSIDE = b'{"":['
_CLOSED = b"]}"


def json_fault(path: Path) -> str | None:
    """Why `path` is not one whole JSON value in UTF-8, or None when it is. Reads it once, without building objects.

    The verdict on a file that is cut into pieces is that on the whole: each piece is a run of elements of one array, at
    the depth that the first piece leaves open and the last one closes. Where a piece is no such thing, the file is
    decided in one go.
    """
    if not path.exists():
        return "no file was written"
    if path.stat().st_size == 0:
        return "the file is empty"
    with path.open("rb") as handle:
        return None if all(_is_valid(piece) for piece in _pieces(handle)) else _fault_of_whole(handle)


def repair_names(path: Path) -> int:
    """Mend in place every name that is no valid JSON string, and bytes that are no UTF-8; returns how many names and
    files of bytes that were. Raises OSError when the mended file cannot be written.
    """
    data = path.read_bytes()
    repaired = 0
    try:
        data.decode()
    except UnicodeDecodeError:
        data = data.decode("utf-8", "replace").encode()
        repaired = 1

    def mend(match: re.Match[bytes]) -> bytes:
        nonlocal repaired
        try:
            json.loads(b'"' + match[2] + b'"')
        except ValueError:
            repaired += 1
            return match[1] + json.dumps(match[2].decode())[1:-1].encode() + match[3]
        return match[0]

    mended = _LABEL.sub(mend, _NAME.sub(mend, data))
    if repaired:
        path.write_bytes(mended)
    return repaired


def _pieces(handle: BinaryIO) -> Iterator[bytes]:
    """The file in pieces that are JSON each, if the file is. Reading lets other threads run."""
    rest, opening = b"", b""
    while block := handle.read(_PIECE):
        searched = max(0, len(rest) - len(_SEAM))
        rest += block
        cut = rest.rfind(_SEAM, searched)
        if cut >= 0:
            yield opening + rest[: cut + 1] + _CLOSED
            rest, opening = rest[cut + 2 :], _INSIDE
        elif len(rest) > _LONGEST:
            # Nothing is no JSON: the file is decided as a whole.
            yield b""
            return
    yield opening + rest


def _is_valid(text: bytes) -> bool:
    try:
        msgspec.json.decode(text, type=msgspec.Raw)
        # msgspec does not look whether what it skips is UTF-8.
        return text.isascii() or bool(text.decode())
    except (msgspec.DecodeError, UnicodeDecodeError):
        return False


def _fault_of_whole(handle: BinaryIO) -> str | None:
    with mmap.mmap(handle.fileno(), 0, access=mmap.ACCESS_READ) as view:
        try:
            msgspec.json.decode(view, type=msgspec.Raw)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return str(error)
    decoder = codecs.getincrementaldecoder("utf-8")()
    handle.seek(0)
    try:
        while block := handle.read(_PIECE):
            decoder.decode(block)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        return str(error)
    return None
