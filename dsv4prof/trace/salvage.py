"""What can be kept of a damaged trace file: every whole event, with a count of the rest and the reason.

Writers cut files (a full disk, a killed process), and several Kineto versions write text that is no JSON: raw control
characters (pytorch #130622), unescaped quotes (kineto #1459), `inf` and `nan` as numbers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec
from isal import isal_zlib

from dsv4prof.model.trace import Dropped
from dsv4prof.trace.wire import NOT_JSON, WireEvent, decode_event, decode_events, split_document

GZIP_MAGIC = b"\x1f\x8b"
_CONTROL = bytes(0x20 if code < 0x20 else code for code in range(256))
_BARE_OR_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"|[-+]?\b(?:nan|inf(?:inity)?)\b', re.IGNORECASE)
_LONE_SURROGATE = re.compile(
    rb"(?<!\\)((?:\\\\)*)(?:(\\ud[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2})|\\ud[89a-f][0-9a-f]{2})", re.IGNORECASE
)
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_CONTROLS = "raw control characters in strings were replaced by spaces"
_ILLEGAL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")
_CONTROL_BYTE = re.compile(rb"[\x00-\x1f]")
_TRIES = 20
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


def inflate(data: bytes) -> tuple[bytes, str | None]:
    """Decompressed bytes, and why the stream ended early (None when it did not)."""
    out: list[bytes] = []
    rest = data
    while rest.startswith(GZIP_MAGIC):
        stream = isal_zlib.decompressobj(wbits=31)
        try:
            for start in range(0, len(rest), 1 << 20):
                out.append(stream.decompress(rest[start : start + (1 << 20)]))
                if stream.eof:
                    break
        except isal_zlib.error as error:  # type: ignore[misc]  # isal has no stubs
            return b"".join(out), f"the gzip stream is damaged ({error})"
        if not stream.eof:
            return b"".join(out), "the gzip stream is cut"
        rest = rest[start + (1 << 20) - len(stream.unused_data) :] if stream.unused_data else rest[start + (1 << 20) :]
    return b"".join(out), None


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
        fields = split_document(text)
        if "traceEvents" not in fields:
            return None
        events, odd = decode_events(fields.pop("traceEvents"))
        dropped = [Dropped(odd, "malformed event")] if odd else []
        return Salvaged(events, fields, dropped, notes, complete=True)
    except NOT_JSON:
        # A stray quote turns the text between strings into strings, so line ends there prove nothing.
        proven = _ILLEGAL.search(data) is not None
        return _scan(text, [note for note in notes if note != _CONTROLS or proven])


def _scan(text: bytes, notes: list[str]) -> Salvaged | None:
    array = _ARRAY.search(text)
    start = array.end() if array else (1 if text[:1] == b"[" else None)
    if start is None:
        return None
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
    dropped = [Dropped(damaged, "damaged event: its text is not JSON")] if damaged else []
    if not closed and b"{" in tail:
        dropped.append(Dropped(1, "event cut off where the file ends early"))
    if closed and b'"traceEvents"' in tail:
        notes = [*notes, "the file holds a second document, which was not read"]
    fields = {**_fields(text[: array.start()]), **_fields(b"{" + tail[1:].lstrip(b" ,"))} if array else {}
    return Salvaged(events, fields, dropped, notes, complete=complete)


def _elements(text: bytes, start: int) -> Iterator[tuple[int, WireEvent | None]]:
    """(end, event) of each object in an array; None for a damaged one, after which the next event start is taken."""
    position = start
    while True:
        while text[position : position + 1] in (b" ", b","):
            position += 1
        if text[position : position + 1] != b"{":
            return
        high = _object_end(text, position)
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


def _object_end(text: bytes, start: int) -> int | None:
    depth = 0
    for token in _TOKEN.finditer(text, start):
        mark = text[token.start()]
        if mark in b"{[":
            depth += 1
        elif mark in b"}]":
            depth -= 1
            if depth == 0:
                return token.end()
    return None


def _fields(text: bytes) -> dict[str, msgspec.Raw]:
    """Top-level values before or after the events, as far as they are whole."""
    text = text.rstrip().rstrip(b",")
    for _ in range(_TRIES):
        for end in (b"", b"}"):
            try:
                return split_document(text + end)
            except NOT_JSON:
                continue
        text = text[: max(text.rfind(b","), 0)]
    return {}
