"""What can be kept of a damaged trace file: every whole event, with a count of the rest and the reason.

Writers cut files (a full disk, a killed process), and several Kineto versions write text that is no JSON: see `mend`,
and unescaped quotes (kineto #1459).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from dsv4prof.model.trace import Dropped
from dsv4prof.trace.mend import Mended, mend
from dsv4prof.trace.scan import EVENTS, TOKEN, elements, events_start
from dsv4prof.trace.wire import NOT_JSON, WireEvent, decode_events, fault_of, split_document
from dsv4prof.trace.writers import document_end, is_end_of_another, second_head

_TRIES = 20
_EVENTS_KEY = b'"traceEvents"'
_AT_BYTE = re.compile(r" \(byte (\d+)\)")


class Salvaged(msgspec.Struct):
    """The readable part of a file. `fields` holds the other top-level values that could be read.

    `foreign` is where the text of another trace begins inside this one; the events are then nobody's.
    """

    events: list[WireEvent]
    fields: dict[str, msgspec.Raw]
    dropped: list[Dropped]
    notes: list[str]
    complete: bool
    foreign: int | None = None


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
    for token in TOKEN.finditer(text):
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


def salvage(data: bytes) -> Salvaged | None:
    """Keep every whole event of text that a strict read refuses; None when there is no `traceEvents` array."""
    foreign = second_head(data)
    if foreign is not None:
        return Salvaged([], {}, [], [], complete=False, foreign=foreign)
    mended = mend(data)
    try:
        whole = read_whole(mended.text)
        return None if whole is None else msgspec.structs.replace(whole, notes=[*mended.notes, *whole.notes])
    except NOT_JSON:
        return _scan(mended)


def _scan(mended: Mended) -> Salvaged | None:
    text, notes = mended.text, mended.notes_of_broken_text()
    start = events_start(text)
    if start is None:
        return None
    array = EVENTS.search(text)
    events: list[WireEvent] = []
    damaged: list[tuple[int, int]] = []
    end = start
    for after, begin, event in elements(text, start):
        end = after
        if event is None:
            damaged.append((begin, after))
        else:
            events.append(event)
    tail = text[end:].lstrip(b" ,")
    closed = tail.startswith(b"]")
    complete = closed and (array is None or tail.rstrip().endswith(b"}"))
    dropped = [_damage(mended, damaged)] if damaged else []
    if not closed and b"{" in tail:
        dropped.append(Dropped(1, "event cut off where the file ends early"))
    if closed and _EVENTS_KEY in tail:
        notes = [*notes, "the file holds a second document, which was not read"]
    fields: dict[str, msgspec.Raw] = {}
    if array is not None:
        before, whole_before = whole_fields(text[: array.start()])
        behind, whole_behind = whole_fields(b"{" + tail[1:].lstrip(b" ,"))
        fields = {**before, **behind}
        if complete and not (whole_before and whole_behind):
            notes = [*notes, "a part of the values beside the events could not be read"]
    foreign = _foreign(mended, len(text) - len(tail)) if closed and array is not None else None
    return Salvaged(events, fields, dropped, notes, complete=complete, foreign=foreign)


def _foreign(mended: Mended, bracket: int) -> int | None:
    """Where another trace's end stands behind the document whose events the bracket closes."""
    tail = mended.text[bracket:]
    end = document_end(tail)
    return mended.origin(bracket + end) if end is not None and is_end_of_another(tail[end:]) else None


def _damage(mended: Mended, damaged: list[tuple[int, int]]) -> Dropped:
    """How many events, and of the first one where it is and what is wrong with it."""
    begin, end = damaged[0]
    piece = mended.text[begin:end]
    why = fault_of(piece) or "its text is not JSON"
    at = _AT_BYTE.search(why)
    if at is not None:
        place = mended.where(begin + int(at[1]))
        if _follows_a_stray_quote(piece, int(at[1])):
            why = f"its text is not JSON: a quote that is not escaped before {place}"
        else:
            why = f"its text is not JSON at {place}"
    words = "damaged event at" if len(damaged) == 1 else "damaged events, the first at"
    return Dropped(len(damaged), f"{words} {mended.where(begin)}: {why}")


def _follows_a_stray_quote(piece: bytes, place: int) -> bool:
    """Whether a string ended, and what follows it is neither its colon nor a comma nor a closing bracket."""
    return piece[:place].rstrip().endswith(b'"') and piece[place : place + 1] not in b",:}]"


def whole_fields(text: bytes) -> tuple[dict[str, msgspec.Raw], bool]:
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
