"""The compiled core by ctypes: what a call needs is handed over as numbers and pointers, and the GIL is free meanwhile.

The library is no Python extension, so that one wheel serves every version of Python.
"""

from __future__ import annotations

import ctypes
import hashlib
import sys
import weakref
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from dsv4prof.model.event import Track
from dsv4prof.trace.columns import EVENT, Ints, OutBlock, Places, Scan
from dsv4prof.trace.core.plain import decode_word, refuse_long
from dsv4prof.trace.core.plain_lanes import check_bounds, check_times

ABI = 1
LIBRARY = Path(__file__).with_name("csrc") / "libdsv4core.so"
SOURCES = Path(__file__).with_name("csrc")
_STOPS = ("more", "closed", "odd", "broken")
_BAD_ROW = 1
_TRACK_HEAD = 18
_MADE = "build it with `python hatch_build.py` in the project's folder, or install dsv4prof again"

_Address = ctypes.c_void_p
_Size = ctypes.c_uint64


class _Result(ctypes.Structure):
    _fields_ = (
        ("rows", _Address),
        ("row_count", _Size),
        ("consumed", _Size),
        ("end", _Size),
        ("words", _Address),
        ("tracks", _Address),
        ("word_ends", _Address),
        ("track_ends", _Address),
        ("word_count", _Size),
        ("track_count", _Size),
        ("stop", ctypes.c_int32),
    )


class _Strings(ctypes.Structure):
    _fields_ = (("bytes", _Address), ("ends", _Address), ("count", _Size))


class _Task(ctypes.Structure):
    _fields_ = (
        ("text", ctypes.c_char_p),
        ("rows", _Address),
        ("ts", _Address),
        ("dur", _Address),
        ("ids", _Address),
        ("place", _Address),
        ("text_length", _Size),
        ("row_count", _Size),
        ("words", _Strings),
        ("places", _Strings),
        ("prefix", ctypes.c_char_p),
        ("prefix_length", _Size),
    )


class _Output(ctypes.Structure):
    _fields_ = (("bytes", _Address), ("length", _Size), ("room", _Size))


_CALLS: dict[str, tuple[Any, list[Any]]] = {
    "scanner_new": (_Address, []),
    "scanner_free": (None, [_Address]),
    "scan": (ctypes.POINTER(_Result), [_Address, ctypes.c_char_p, _Size, _Size, ctypes.c_int32]),
    "output_new": (ctypes.POINTER(_Output), []),
    "output_free": (None, [ctypes.POINTER(_Output)]),
    "encode": (ctypes.c_int32, [ctypes.POINTER(_Output), ctypes.POINTER(_Task)]),
    "split_lanes": (ctypes.c_int32, [_Address, _Address, _Size, _Address, _Size, _Address]),
    "innermost": (ctypes.c_int32, [_Address, _Address, _Size, _Address, _Size, _Address]),
}


class UnusableError(Exception):
    """The library is absent, does not load, or is another version's; the message says which."""


def stamp() -> str | None:
    """What the sources beside this file are; None where there are none."""
    files = sorted(SOURCES.glob("*.[ch]"))
    if not files:
        return None
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]


class Native:
    """The loaded library. Raises UnusableError when it cannot be used."""

    scanner_new: Callable[..., Any]
    scanner_free: Callable[..., Any]
    scan: Callable[..., Any]
    output_new: Callable[..., Any]
    output_free: Callable[..., Any]
    encode: Callable[..., Any]
    split_lanes: Callable[..., Any]
    innermost: Callable[..., Any]

    def __init__(self, path: Path = LIBRARY) -> None:
        if sys.byteorder != "little":
            raise UnusableError("rows are little-endian and this machine is not")
        if not path.exists():
            raise UnusableError(f"{path.name} is not there; {_MADE}")
        try:
            library = ctypes.CDLL(str(path))
            library.dsv4_stamp.restype = ctypes.c_char_p
            abi, built = library.dsv4_abi(), library.dsv4_stamp().decode()
        except (OSError, AttributeError) as error:
            raise UnusableError(f"{path.name} does not load ({error}); {_MADE}") from error
        if abi != ABI:
            raise UnusableError(f"{path.name} has interface {abi}, this version needs {ABI}; {_MADE}")
        # A checkout's library may be older than its sources.
        if built and stamp() not in (None, built):
            raise UnusableError(f"{path.name} was built from other sources than those beside it; {_MADE}")
        for name, (result, arguments) in _CALLS.items():
            call = getattr(library, f"dsv4_{name}")
            call.restype, call.argtypes = result, arguments
            setattr(self, name, call)

    def new_scanner(self) -> NativeScanner:
        """A scanner for one file."""
        return NativeScanner(self)

    def new_encoder(self, words: list[str], places: list[bytes], prefix: bytes) -> NativeEncoder:
        """An encoder for one rank; see `plain_encode.PlainEncoder`."""
        return NativeEncoder(self, words, places, prefix)

    def lanes(self, start: Ints, end: Ints, bounds: Ints) -> Places:
        """See `core.split_lanes`."""
        start, end, bounds = _ints(start), _ints(end), _ints(bounds)
        check_bounds(start, end, bounds)
        out = np.ones(len(start), np.int32)
        _with_memory(
            self.split_lanes(
                start.ctypes.data, end.ctypes.data, len(start), bounds.ctypes.data, len(bounds), out.ctypes.data
            )
        )
        return out

    def open_at(self, start: Ints, end: Ints, at: Ints) -> Ints:
        """See `core.innermost`."""
        start, end, at = _ints(start), _ints(end), _ints(at)
        check_times(start, end, at)
        out = np.empty(len(at), np.int64)
        _with_memory(
            self.innermost(start.ctypes.data, end.ctypes.data, len(start), at.ctypes.data, len(at), out.ctypes.data)
        )
        return out


class NativeScanner:
    """Reads the elements of one file's `traceEvents`; see `columns.Scanner`. For one thread at a time."""

    def __init__(self, native: Native) -> None:
        self.words: list[str] = []
        self.tracks: list[Track] = []
        self._native = native
        self._handle = _with_memory(native.scanner_new())
        weakref.finalize(self, native.scanner_free, self._handle)

    def scan(self, text: bytes, start: int = 0, *, canonical: bool = False) -> Scan:
        """See `columns.Scanner.scan`. Raises InputError for a text of over 1 GiB."""
        refuse_long(text, start)
        result = self._native.scan(self._handle, text, len(text), start, canonical).contents
        if result.stop == len(_STOPS):
            raise MemoryError
        rows = np.empty(result.row_count, EVENT)
        if len(rows):
            ctypes.memmove(rows.ctypes.data, result.rows, rows.nbytes)
        for token in _new_strings(result.words, result.word_ends, result.word_count, len(self.words)):
            self.words.append(decode_word(b'"%b"' % token))
        for key in _new_strings(result.tracks, result.track_ends, result.track_count, len(self.tracks)):
            self.tracks.append(_track(key))
        return Scan(rows, result.consumed, _STOPS[result.stop], result.end)


class NativeEncoder:
    """Writes blocks of one rank; see `plain_encode.PlainEncoder`. For one thread at a time."""

    def __init__(self, native: Native, words: list[str], places: list[bytes], prefix: bytes) -> None:
        self._native = native
        self._words = words
        self._places = places
        self._prefix = prefix
        self._encoded = _Blob()
        self._placed = _Blob()
        self._output = native.output_new()
        _with_memory(bool(self._output))
        weakref.finalize(self, native.output_free, self._output)

    def block(self, block: OutBlock) -> bytes:
        """The lines of a block, joined by a comma and a line's end; phase M has none.

        Raises IndexError when a row names a word, a track or a piece of text that does not exist.
        """
        self._encoded.add([msgspec.json.encode(word) for word in self._words[self._encoded.count :]])
        self._placed.add(self._places[self._placed.count :])
        rows = np.ascontiguousarray(block.rows, EVENT)
        ts, dur, ids = _ints(block.ts), _ints(block.dur), _ints(block.ids)
        place = np.ascontiguousarray(block.place, np.int32)
        if not len(rows) == len(ts) == len(dur) == len(ids) == len(place):
            raise ValueError("columns of a block differ in length")
        task = _Task(
            block.text, rows.ctypes.data, ts.ctypes.data, dur.ctypes.data, ids.ctypes.data, place.ctypes.data,
            len(block.text), len(rows), self._encoded.strings(), self._placed.strings(), self._prefix,
            len(self._prefix),
        )  # fmt: skip
        state = self._native.encode(self._output, ctypes.byref(task))
        if state == _BAD_ROW:
            raise IndexError("a row names a word, a place or a piece of the text that does not exist")
        _with_memory(not state)
        output = self._output.contents
        return ctypes.string_at(output.bytes, output.length) if output.length else b""


class _Blob:
    """Byte strings one behind the other, and where each ends; room doubles, so that adding is cheap."""

    def __init__(self) -> None:
        self.count = 0
        self._size = 0
        self._bytes = np.empty(1 << 12, np.uint8)
        self._ends = np.empty(1 << 8, np.uint64)

    def add(self, strings: list[bytes]) -> None:
        if not strings:
            return
        joined = np.frombuffer(b"".join(strings), np.uint8)
        ends = self._size + np.cumsum([len(string) for string in strings])
        self._bytes = _with_room(self._bytes, self._size, len(joined))
        self._ends = _with_room(self._ends, self.count, len(ends))
        self._bytes[self._size : self._size + len(joined)] = joined
        self._ends[self.count : self.count + len(ends)] = ends
        self._size += len(joined)
        self.count += len(ends)

    def strings(self) -> _Strings:
        return _Strings(self._bytes.ctypes.data, self._ends.ctypes.data, self.count)


def _with_room(array: npt.NDArray[Any], used: int, more: int) -> npt.NDArray[Any]:
    if used + more <= len(array):
        return array
    wider = np.empty(2 * (used + more), array.dtype)
    wider[:used] = array[:used]
    return wider


def _new_strings(data: int, ends: int, count: int, known: int) -> list[bytes]:
    """Strings `known` to `count` of a table in the library's memory."""
    if count == known:
        return []
    width = ctypes.sizeof(_Size)
    first = _Size.from_address(ends + (known - 1) * width).value if known else 0
    edges = [first, *(_Size * (count - known)).from_address(ends + known * width)]
    text = ctypes.string_at(data + first, edges[-1] - first)
    return [text[begin - first : end - first] for begin, end in pairwise(edges)]


def _track(key: bytes) -> Track:
    """A track of its key: for process and thread a kind and an integer or a length, then their words."""
    parts: list[int | str] = []
    at = _TRACK_HEAD
    for head in (0, 9):
        number = int.from_bytes(key[head + 1 : head + 9], "little", signed=True)
        if key[head]:
            parts.append(decode_word(b'"%b"' % key[at : at + number]))
            at += number
        else:
            parts.append(number)
    return Track(*parts)


def _ints(array: Ints) -> Ints:
    return np.ascontiguousarray(array, np.int64)


def _with_memory(found: Any) -> Any:
    if not found:
        raise MemoryError
    return found
