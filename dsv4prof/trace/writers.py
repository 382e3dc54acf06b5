"""Two processes that wrote one path: their texts lie mixed in each other, and no figure of the file is anyone's.

Ranks that take their path from one environment variable do that (TensorRT-LLM #13536). A second document that begins
inside an unfinished first one shows it, or the end of another document behind a whole one: the longer file's, where
both wrote from the start.
"""

from __future__ import annotations

import re
import zlib

from dsv4prof.trace.inflate import inflate
from dsv4prof.trace.mend import mend
from dsv4prof.trace.scan import TOKEN, elements, events_start, object_end
from dsv4prof.trace.wire import NOT_JSON, split_document

_HEAD = rb'\{(?=\s*"(?:schemaVersion|traceEvents|displayTimeUnit|deviceProperties|baseTimeNanoseconds)"\s*:)'
_LIST = rb'"traceEvents"\s*:\s*\[(?=\s*[{\]])'
_MARK = re.compile(b"(?P<head>" + _HEAD + b")|" + _LIST)
_DOCUMENT = re.compile(_HEAD)
# What no profiler gives an object: one that begins there is another writer's.
_PLAIN_KEYS = frozenset(
    b"schemaVersion deviceProperties displayTimeUnit baseTimeNanoseconds traceName traceEvents backend rank world_size "
    b"ph cat name pid tid ts dur id s bp".split()
)
_KEY = re.compile(rb'"([^"\\]*)"\s*:\s*\Z')
_LONGEST_KEY = 64
_GZIP_HEADER = re.compile(rb"\x1f\x8b\x08[\x00-\x1f]")
_ENOUGH = 512
_GZIP = 16 + zlib.MAX_WBITS


def second_head(data: bytes) -> int | None:
    """Where another trace begins inside an unfinished one; documents one after the other are none.

    For text that is no JSON. A file may be cut inside the second one's head: then its list of events counts.
    """
    start = len(data) - len(data.lstrip())
    if data[start : start + 1] not in (b"{", b"["):
        # A line of some log before the document is no document.
        first = _DOCUMENT.search(data)
        start = first.start() if first is not None else start
    lists = 0
    doubtful: int | None = None
    for mark in _MARK.finditer(data, start + 1):
        place = mark.start()
        if not mark["head"]:
            lists += 1
            if doubtful is not None:
                return doubtful
            if lists == 2 and not _is_over(data[start:place], document=False):
                return place
        elif _may_be_an_argument(data, place):
            doubtful = place
        elif _is_over(data[start:place], document=True):
            start, lists, doubtful = place, 0, None
        else:
            return place
    return None


def _may_be_an_argument(data: bytes, place: int) -> bool:
    """Arguments may hold anything that looks like a trace, except a list of events."""
    key = _KEY.search(data, max(0, place - _LONGEST_KEY), place)
    return key is not None and key[1] not in _PLAIN_KEYS


def _is_over(data: bytes, *, document: bool) -> bool:
    """Whether a text, damaged or not, holds a trace to its end; with `document` false to the end of its events."""
    if document:
        try:
            split_document(data)
            return True
        except NOT_JSON:
            pass
    text = mend(data).text
    start = events_start(text)
    if start is None:
        return False
    end = start
    for after, _, _ in elements(text, start):
        end = after
    tail = text[end:].lstrip(b" ,")
    if not tail.startswith(b"]"):
        return False
    bare = text.lstrip()[:1] == b"["
    return bare or not document or document_end(tail) is not None


def document_end(tail: bytes) -> int | None:
    """Where a document ends in the text from the bracket that closes its events."""
    # The bracket's place is taken by the brace that opens the document.
    return object_end(b"{" + tail[1:], 0, len(tail))


def is_end_of_another(rest: bytes) -> bool:
    """Whether what stands behind a document is another one's end: it closes more than it opens."""
    rest = rest.strip()
    if _DOCUMENT.match(rest) or rest[-1:] not in (b"}", b"]") or b'"' not in rest:
        return False
    marks = [token[0] for token in TOKEN.finditer(rest)]
    return sum((mark in (b"{", b"[")) - (mark in (b"}", b"]")) for mark in marks) < 0


def second_stream(packed: bytes) -> int | None:
    """Where another gzip stream with a trace in it begins inside an unfinished one."""
    for header in _GZIP_HEADER.finditer(packed, 1):
        try:
            text = zlib.decompressobj(_GZIP).decompress(packed[header.start() :], _ENOUGH)
        except zlib.error:
            continue
        if text.lstrip()[:1] == b"{" and inflate(packed[: header.start()]).cut is not None:
            return header.start()
    return None
