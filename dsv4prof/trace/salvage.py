"""What can be kept of a damaged trace file: every whole event, with a count of the rest and the reason.

Writers cut files (a full disk, a killed process), and several Kineto versions write text that is no JSON: raw control
characters (pytorch #130622), unescaped quotes (kineto #1459), `inf` and `nan` as numbers.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator

import msgspec

from dsv4prof.model.trace import Dropped
from dsv4prof.trace.wire import NOT_JSON, WireEvent, decode_event, decode_events, split_document

_CONTROL = bytes(0x20 if code < 0x20 else code for code in range(256))
_BARE_OR_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"|[-+]?\b(?:nan|inf(?:inity)?)\b', re.IGNORECASE)
_LONE_SURROGATE = re.compile(
    rb"(?<!\\)((?:\\\\)*)(?:(\\ud[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2})|\\ud[89a-f][0-9a-f]{2})", re.IGNORECASE
)
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_DAMAGED = "damaged event: its text is not JSON"
_CONTROLS = "raw control characters in strings were replaced by spaces"
_ILLEGAL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_CONTROL_BYTE = re.compile(rb"[\x00-\x1f]")
_TRIES = 20
# Objects in a list among an event's arguments look like starts of events.
_MAX_INNER_STARTS = 64
_EVENTS_KEY = b'"traceEvents"'
_ARRAY = re.compile(rb'"traceEvents"\s*:\s*\[')
_EVENT_START = re.compile(rb'(?<![:\s])\s*\{\s*"(?:ph|name|cat|pid|tid|ts|id|s|args)"\s*:')
_TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]]', re.DOTALL)


class Salvaged(msgspec.Struct):
    """The readable part of a file. `fields` holds the other top-level values that could be read."""

    events: list[WireEvent]
    fields: dict[str, msgspec.Raw]
    dropped: list[Dropped]
    notes: list[str]
    complete: bool


def read_whole(text: bytes) -> Salvaged | None:
    """A document that needs no salvage; None when it has no `traceEvents`.

    Raises msgspec.DecodeError or another of NOT_JSON when the text is not JSON.
    """
    fields = split_document(text)
    if "traceEvents" not in fields:
        return None
    last = fields.pop("traceEvents")
    arrays: list[bytes | msgspec.Raw] = [last]
    if text.count(_EVENTS_KEY) > 1:
        arrays = [*repeated_values(text, _EVENTS_KEY)] or arrays
    events: list[WireEvent] = []
    odd = 0
    for array in arrays:
        own, malformed = decode_events(array)
        events += own
        odd += malformed
    notes = [f"the file holds {len(arrays)} lists of events; all were read"] if len(arrays) > 1 else []
    return Salvaged(events, fields, [Dropped(odd, "malformed event")] if odd else [], notes, complete=True)


def repeated_values(text: bytes, key: bytes) -> Iterator[bytes]:
    """The arrays or objects under a top-level key that stands more than once, of which a JSON reader keeps the last."""
    depth = 0
    expected = False
    start: int | None = None
    for token in _TOKEN.finditer(text):
        mark = token[0][:1]
        if mark == b'"':
            expected = depth == 1 and token[0] == key
        elif mark in b"{[":
            depth += 1
            if expected and depth == 2:
                start = token.start()
            expected = False
        else:
            depth -= 1
            if start is not None and depth == 1:
                yield text[start : token.end()]
                start = None


def repair_text(data: bytes) -> tuple[bytes, list[str]]:
    """The same text with the faults mended that need no guess, and a sentence for each kind of fault.

    Control characters become spaces, bytes that are no UTF-8 and lone surrogates become U+FFFD, bare nan and inf
    become null.
    """
    notes: list[str] = []
    clean = data.translate(_CONTROL)
    if clean != data and _strings_hold_controls(data):
        notes.append(_CONTROLS)
    utf8 = clean.decode("utf-8", "replace").encode()
    if utf8 != clean:
        notes.append("bytes that are not UTF-8 were replaced by U+FFFD")
    paired, _ = _LONE_SURROGATE.subn(lambda m: m[0] if m[2] else m[1] + b"\\ufffd", utf8)
    if paired != utf8:
        notes.append("lone surrogates were replaced by U+FFFD")
    numbers = _BARE_OR_STRING.sub(lambda m: m[0] if m[0].startswith(b'"') else b"null", paired)
    if numbers != paired:
        notes.append("nan and inf, which JSON does not have, were read as absent")
    return numbers, notes


def _strings_hold_controls(data: bytes) -> bool:
    return any(_CONTROL_BYTE.search(match[0]) for match in _STRING.finditer(data))


def salvage(data: bytes) -> Salvaged | None:
    """Keep every whole event of text that a strict read refuses; None when there is no `traceEvents` array."""
    text, notes = repair_text(data)
    try:
        whole = read_whole(text)
        return None if whole is None else msgspec.structs.replace(whole, notes=[*notes, *whole.notes])
    except NOT_JSON:
        # A stray quote turns the text between strings into strings, so line ends there prove nothing.
        proven = _ILLEGAL.search(data) is not None
        return _scan(text, [note for note in notes if note != _CONTROLS or proven])


def _scan(text: bytes, notes: list[str]) -> Salvaged | None:
    array = _ARRAY.search(text)
    bare = len(text) - len(text.lstrip()) if text.lstrip()[:1] == b"[" else None
    if array is None and bare is None:
        return None
    start = array.end() if array else (bare or 0) + 1
    events: list[WireEvent] = []
    damaged = 0
    end = start
    for after, event in _elements(text, start):
        end = after
        if event is None:
            damaged += 1
        else:
            events.append(event)
    tail = text[end:].lstrip(b" ,")
    closed = tail.startswith(b"]")
    complete = closed and (array is None or tail.rstrip().endswith(b"}"))
    dropped = [Dropped(damaged, _DAMAGED)] if damaged else []
    if not closed and b"{" in tail:
        dropped.append(Dropped(1, "event cut off where the file ends early"))
    if closed and _EVENTS_KEY in tail:
        notes = [*notes, "the file holds a second document, which was not read"]
    fields: dict[str, msgspec.Raw] = {}
    if array is not None:
        before, whole_before = _fields(text[: array.start()])
        behind, whole_behind = _fields(b"{" + tail[1:].lstrip(b" ,"))
        fields = {**before, **behind}
        if complete and not (whole_before and whole_behind):
            notes = [*notes, "a part of the values beside the events could not be read"]
    return Salvaged(events, fields, dropped, notes, complete=complete)


def _elements(text: bytes, start: int) -> Iterator[tuple[int, WireEvent | None]]:
    """(end, event) of each object in an array; None for a damaged one, after which the next event start is taken."""
    position = start
    limits = _Limits(text)
    while True:
        while text[position : position + 1] in (b" ", b","):
            position += 1
        if text[position : position + 1] != b"{":
            return
        high = _object_end(text, position, limits.behind(position))
        event = decode_event(text[position:high]) if high is not None else None
        if high is not None and event is not None:
            yield high, event
            position = high
            continue
        resume = _EVENT_START.search(text, position + 1)
        if resume is None:
            if high is not None:
                yield high, None
            return
        position = text.index(b"{", resume.start())
        yield position, None


class _Limits:
    """How far to look for the end of an event: over so many starts of others at most.

    Without a limit every event with a brace too many costs a walk to the end of the file.
    """

    def __init__(self, text: bytes) -> None:
        self._starts = (match.end() for match in _EVENT_START.finditer(text))
        self._ahead: deque[int] = deque()
        self._end = len(text)

    def behind(self, position: int) -> int:
        while self._ahead and self._ahead[0] <= position:
            self._ahead.popleft()
        while len(self._ahead) < _MAX_INNER_STARTS:
            start = next(self._starts, None)
            if start is None:
                return self._end
            if start > position:
                self._ahead.append(start)
        return self._ahead[-1]


def _object_end(text: bytes, start: int, limit: int) -> int | None:
    depth = 0
    for token in _TOKEN.finditer(text, start, limit):
        mark = text[token.start()]
        if mark in b"{[":
            depth += 1
        elif mark in b"}]":
            depth -= 1
            if depth == 0:
                return token.end()
    return None


def _fields(text: bytes) -> tuple[dict[str, msgspec.Raw], bool]:
    """Top-level values before or after the events, as far as they are whole, and whether that is all of them."""
    text = text.rstrip().rstrip(b",")
    for attempt in range(_TRIES):
        for end in (b"", b"}"):
            try:
                return split_document(text + end), attempt == 0
            except NOT_JSON:
                continue
        text = text[: max(text.rfind(b","), 0)]
    return {}, False
