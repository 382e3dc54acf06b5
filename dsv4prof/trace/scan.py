"""Walking over events in text that no JSON reader takes: where each one ends, and where the next one begins."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator

from dsv4prof.trace.wire import WireEvent, decode_event

# Objects in a list among an event's arguments look like starts of events.
_MAX_INNER_STARTS = 64
_EVENT_START = re.compile(rb'(?<![:\s])\s*\{\s*"(?:ph|name|cat|pid|tid|ts|id|s|args)"\s*:')
EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
# The bracket that ends the list, by what stands behind it; another one is a stray byte between two events.
_CLOSES = re.compile(rb'\]\s*(?:\}|,\s*"|\{|\Z)|\Z')
TOKEN = re.compile(rb'"(?:[^"\\]|\\.)*"|[{}\[\]]', re.DOTALL)


def events_start(text: bytes) -> int | None:
    """Where the first element of the list of events may stand, in a document or a bare array."""
    array = EVENTS.search(text)
    if array is not None:
        return array.end()
    blank = len(text) - len(text.lstrip())
    return blank + 1 if text[blank : blank + 1] == b"[" else None


def elements(text: bytes, start: int) -> Iterator[tuple[int, int, WireEvent | None]]:
    """(end, begin, event) of each object in an array; None for a damaged one, which ends where the next event starts.
    """
    position = start
    limits = _Limits(text)
    while True:
        while text[position : position + 1] in (b" ", b","):
            position += 1
        if text[position : position + 1] != b"{":
            stray = None if _CLOSES.match(text, position) else _EVENT_START.search(text, position)
            if stray is None:
                return
            begin, position = position, text.index(b"{", stray.start())
            yield position, begin, None
            continue
        high = object_end(text, position, limits.behind(position))
        event = decode_event(text[position:high]) if high is not None else None
        if high is not None and event is not None:
            yield high, position, event
            position = high
            continue
        resume = _EVENT_START.search(text, position + 1)
        if resume is None:
            if high is not None:
                yield high, position, None
            return
        begin, position = position, text.index(b"{", resume.start())
        yield position, begin, None


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


def object_end(text: bytes, start: int, limit: int) -> int | None:
    depth = 0
    for token in TOKEN.finditer(text, start, limit):
        mark = text[token.start()]
        if mark in b"{[":
            depth += 1
        elif mark in b"}]":
            depth -= 1
            if depth == 0:
                return token.end()
    return None
