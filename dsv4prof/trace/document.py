"""A trace document read as it comes: its values before the events, its events block by block, its values behind them.

Nothing depends on the order of keys or on layout. What is not a well-formed document raises DamagedError; the caller
reads such a file whole and salvages it.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from dsv4prof.trace.chunks import CutError, DamagedError
from dsv4prof.trace.columns import Block, Scanner
from dsv4prof.trace.salvage import whole_fields
from dsv4prof.trace.scan import EVENTS
from dsv4prof.trace.wire import NOT_JSON, check_utf8, split_document

_JSON_CUT = "the JSON is cut"
_KEY = b'"traceEvents"'
# A key that begins at a piece's end; white space may follow it.
_OVERLAP = 64


class Odd(msgspec.Struct, frozen=True):
    """One element that the scanner leaves to the general reader, as text."""

    text: bytes


class Document:
    """One pass over a document. When `blocks` is exhausted, `fields` holds the other top-level values.

    `cut` then says why the text ends early, if it does, and `unfinished` that it ends inside an event.
    """

    def __init__(self, pieces: Iterator[bytes], scanner: Scanner) -> None:
        self._pieces = pieces
        self._scanner = scanner
        self._head = b""
        self._bare = False
        self.fields: dict[str, msgspec.Raw] = {}
        self.cut: str | None = None
        self.unfinished = False
        self.notes: list[str] = []

    def blocks(self) -> Iterator[Block | Odd]:
        """The events in file order. Raises DamagedError; what was given before it is then void."""
        text = self._first_events()
        place = 0
        while True:
            rows, place, stop, end = self._scanner.scan(text, place)
            if len(rows):
                yield Block(text, rows)
            if stop == "odd":
                yield Odd(text[place:end])
                place = end
            elif stop == "more":
                piece = self._next()
                if piece is None:
                    self._end_early(text[place:])
                    return
                text, place = text[place:] + piece, 0
            elif stop == "closed":
                self._close(text[place:])
                return
            else:
                raise DamagedError("its text is not JSON")

    def _next(self) -> bytes | None:
        try:
            piece = next(self._pieces, None)
        except CutError as error:
            self.cut = str(error)
            return None
        if piece is None:
            self.cut = _JSON_CUT
        return piece

    def _end_early(self, rest: bytes) -> None:
        self.unfinished = b"{" in rest
        self.fields, _ = whole_fields(self._head)

    def _first_events(self) -> bytes:
        """The text behind the bracket that opens the list of events."""
        text = b""
        looked = 0
        while (piece := self._next()) is not None:
            text += piece
            if not self._head and text.lstrip()[:1] == b"[":
                self._bare = True
                return text.lstrip()[1:]
            for match in EVENTS.finditer(text, looked):
                if _is_head(text[: match.start()]):
                    self._head = text[: match.start()]
                    return text[match.end() :]
            looked = max(len(text) - _OVERLAP, 0)
        raise DamagedError("it has no traceEvents")

    def _close(self, rest: bytes) -> None:
        tail = rest
        while (piece := self._next()) is not None:
            tail += piece
        tail = tail.rstrip(b"\0")
        if self.cut == _JSON_CUT:
            # The text simply ended, as it should.
            self.cut = None
        elif self.cut is not None and not self._bare and tail.rstrip().endswith(b"}"):
            self.notes.append(f"{self.cut} behind the document: the checksum is missing")
            self.cut = None
        if self._bare:
            if tail[1:].strip():
                raise DamagedError("text behind the list of events")
            return
        if _KEY in tail:
            raise DamagedError("the file holds several lists of events")
        try:
            check_utf8(self._head)
            check_utf8(tail)
            if not tail.rstrip().endswith(b"}"):
                self.cut = self.cut or _JSON_CUT
                before, _ = whole_fields(self._head)
                behind, _ = whole_fields(b"{" + tail[1:].lstrip(b" ,\r\n\t"))
                self.fields = {**before, **behind}
                return
            self.fields = split_document(self._head + _KEY + b":[" + tail)
        except NOT_JSON as error:
            raise DamagedError(str(error)) from error
        del self.fields["traceEvents"]


def _is_head(text: bytes) -> bool:
    """Whether a text is an object's beginning up to a key: what looks like the list may stand inside a value."""
    try:
        return isinstance(split_document(text + _KEY + b":[]}"), dict) and text.lstrip()[:1] == b"{"
    except NOT_JSON:
        return False
