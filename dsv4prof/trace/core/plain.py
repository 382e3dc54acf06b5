"""The scanner in Python alone: what the compiled one does, with the same results, for a machine without a compiler."""

from __future__ import annotations

import re
from struct import Struct

import msgspec
import numpy as np

from dsv4prof.errors import InputError
from dsv4prof.model.event import Track
from dsv4prof.trace.columns import BINDS_ENCLOSING, EVENT, HAS_ID, ID_IS_WORD, Scan
from dsv4prof.trace.core.grammar import ELEMENT, FIELDS, GROUPS, Walk, check, walk
from dsv4prof.trace.wire import MAX_DEPTH, MAX_NS

# Offsets into a text are 32 bits wide; blocks are some MB.
MAX_TEXT = 1 << 30
# The general reader's limit is a whole number of microseconds.
_MAX_NS = MAX_NS // 1000 * 1000
_INT64 = range(-(2**63), 2**63)
_SEPARATORS = re.compile(rb"[ \t\n\r,]*")
_ROW = Struct("<qqqiiiIIBBBx")
_CLOSED = ord("]")
_QUOTE = ord('"')
_EMPTY = b'""'
_NOTHING = (None, b"null")
_FLOWS = frozenset(b"stf")
_WITH_ID = frozenset(b"stfbne")
_PHASES = {b'"%c"' % letter: letter for letter in b"XistfbneM"} | {b'"I"': ord("i")}
_CANONICAL = {**_PHASES, b'"C"': ord("C")}
_SLICE, _INSTANT, _META = b"XiM"
_SCOPES = {None: ord("t"), b'"t"': ord("t"), b'"p"': ord("p"), b'"g"': ord("g")}
_KNOWN = {b'"%b"' % key: (key.decode(), re.compile(value)) for key, value in FIELDS.items() if key != b"args"}
_KNOWN_GROUPS = {b'"%b"' % key: place for place, key in enumerate(FIELDS)}
_MOST_DIGITS = 19

Tokens = tuple[bytes | None, ...]


class PlainScanner:
    """Reads the elements of one file's `traceEvents` in Python; see `columns.Scanner`."""

    def __init__(self) -> None:
        self.words: list[str] = []
        self.tracks: list[Track] = []
        self._words: dict[bytes | None, int] = {}
        self._tracks: dict[tuple[bytes | None, bytes | None], int] = {}
        self._by_value: dict[tuple[int | bytes, int | bytes], int] = {}

    def scan(self, text: bytes, start: int = 0, *, canonical: bool = False) -> Scan:
        """See `columns.Scanner.scan`. Raises InputError for a text of over 1 GiB."""
        refuse_long(text, start)
        utf8 = check(text)
        phases = _CANONICAL if canonical else _PHASES
        rows: list[bytes] = []
        at = start
        while True:
            between = _SEPARATORS.match(text, at)
            assert between is not None, "no separators are separators"
            at = between.end()
            if at == len(text):
                return _result(rows, at, "more", at)
            match = ELEMENT.match(text, at)
            if match is not None and match.end() <= utf8.until:
                end = match.end()
                args = match.span("args")
                row = self._row(match.group(*GROUPS), args, phases)
            elif text[at] == _CLOSED:
                return _result(rows, at, "closed", at)
            else:
                found = walk(text, at, utf8)
                if found.stop:
                    return _result(rows, at, found.stop, at)
                end = found.end
                row = self._odd_row(text, found, phases)
            if row is None:
                return _result(rows, at, "odd", end)
            rows.append(row)
            at = end

    def _odd_row(self, text: bytes, found: Walk, phases: dict[bytes, int]) -> bytes | None:
        """The row of an element in valid JSON that the pattern did not take; None when it needs the general reader."""
        if found.odd or found.depth > MAX_DEPTH:
            return None
        tokens: list[bytes | None] = [None] * len(FIELDS)
        args = (0, 0)
        for key, start, end in found.members:
            if b"\\" in key:
                return None
            if key == b'"args"':
                if text[start] not in b"{n":
                    return None
                args = (start, end)
                tokens[-1] = text[start:end]
            elif key in _KNOWN:
                value = text[start:end]
                if not _KNOWN[key][1].fullmatch(value):
                    return None
                tokens[_KNOWN_GROUPS[key]] = value
        return self._row(tuple(tokens), args, phases)

    def _row(self, tokens: Tokens, args: tuple[int, int], phases: dict[bytes, int]) -> bytes | None:
        ph, name, cat, pid, tid, ts, dur, id_, scope, bp, arguments = tokens
        phase = phases.get(ph or b"")
        if phase is None:
            return None
        ts_ns = dur_ns = number = flags = letter = 0
        if phase != _META:
            at_ns = nanoseconds(ts)
            if at_ns is None:
                return None
            ts_ns = at_ns
        if phase == _SLICE:
            length = nanoseconds(dur)
            if length is None or (not ts_ns and not length and phases is not _CANONICAL):
                return None
            dur_ns = length
        elif phase == _INSTANT:
            found = _SCOPES.get(scope)
            if found is None:
                return None
            letter = found
        elif phase in _WITH_ID:
            if id_ is None or id_ == b"null":
                return None
            flags = HAS_ID
            if id_[0] == _QUOTE:
                flags |= ID_IS_WORD
            else:
                wide = _integer(id_)
                if wide is None:
                    return None
                number = wide
            if phase in _FLOWS and bp not in _NOTHING:
                flags |= BINDS_ENCLOSING
        track = self._tracks.get((pid, tid))
        if track is None:
            track = self._new_track(pid, tid)
            if track is None:
                return None
        args_at, args_end = (0, 0) if arguments in _NOTHING else args
        words = self._words
        name_at = words.get(name)
        if name_at is None:
            name_at = self._new_word(name)
        cat_at = words.get(cat)
        if cat_at is None:
            cat_at = self._new_word(cat)
        if flags & ID_IS_WORD:
            number = words.get(id_, -1)
            if number < 0:
                number = self._new_word(id_)
        return _ROW.pack(
            ts_ns, dur_ns, number, name_at, cat_at, track, args_at, args_end - args_at, phase, letter, flags
        )

    def _new_word(self, token: bytes | None) -> int:
        """The place of a token that was not seen before; an absent one is the empty word."""
        place = self._words.setdefault(token or _EMPTY, len(self.words))
        self._words[token] = place
        if place == len(self.words):
            self.words.append(decode_word(token or _EMPTY))
        return place

    def _new_track(self, pid: bytes | None, tid: bytes | None) -> int | None:
        """The place of a track that was not seen before: integers by value and words by their text.

        None for an integer beyond 64 bits.
        """
        process, thread = _key(pid), _key(tid)
        if process is None or thread is None:
            return None
        place = self._by_value.setdefault((process, thread), len(self.tracks))
        if place == len(self.tracks):
            self.tracks.append(Track(_part(process), _part(thread)))
        self._tracks[pid, tid] = place
        return place


def refuse_long(text: bytes, start: int) -> None:
    """Raise InputError for a text whose places do not fit a row, ValueError for a start outside it."""
    if len(text) > MAX_TEXT:
        raise InputError(
            f"a block of {len(text):,} bytes is too long to scan", hint="one event is over 1 GiB; the file is damaged"
        )
    if not 0 <= start <= len(text):
        raise ValueError(f"start {start} lies outside the text of {len(text)} bytes")


def decode_word(token: bytes) -> str:
    """The string of a JSON string's token."""
    if b"\\" in token:
        word: str = msgspec.json.decode(token, type=str)
        return word
    return token[1:-1].decode()


def nanoseconds(token: bytes | None) -> int | None:
    """Exact ns of a number's token in us; None when it is negative, too large, has an exponent or parts of a ns."""
    if token is None:
        return None
    if token[-4:-3] == b".":
        digits = token[:-4] + token[-3:]
    else:
        whole, _, part = token.partition(b".")
        part = part.rstrip(b"0").ljust(3, b"0")
        if len(part) > 3:
            return None
        digits = whole + part
    if len(digits) > _MOST_DIGITS or not digits.isdigit():
        return None
    ns = int(digits)
    return ns if ns <= _MAX_NS else None


def _integer(token: bytes) -> int | None:
    # Longer ones are refused before int() sees them: it has a limit of its own.
    if len(token) > _MOST_DIGITS + 1:
        return None
    value = int(token)
    return value if value in _INT64 else None


def _key(token: bytes | None) -> int | bytes | None:
    if token is None:
        return 0
    return token if token[0] == _QUOTE else _integer(token)


def _part(key: int | bytes) -> int | str:
    return key if isinstance(key, int) else decode_word(key)


def _result(rows: list[bytes], consumed: int, stop: str, end: int) -> Scan:
    return Scan(np.frombuffer(bytearray().join(rows), EVENT), consumed, stop, end)
