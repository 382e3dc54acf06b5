"""What is in a trace that passes by in chunks: how many events, and which thread's operators and how many kernels.

An empty trace looks like any other file. Recording is per thread, so a profiler that was started beside the work saves
a whole, valid trace of nothing (sglang-omni #1304); only a count of operators by thread tells.
"""

from __future__ import annotations

import re

import msgspec

# Kineto writes a space after a colon, torch's Python exporter does not; a quote inside a name is escaped, so neither
# mark can lie in one.
_EVENT = re.compile(rb'"ph": ?"')
_WORK = re.compile(
    rb'"cat": ?"(cpu_op|kernel)",\s*"name": ?"(?:[^"\\]|\\.)*",\s*"pid": ?"?[^,"]*"?,\s*"tid": ?"?([^,"]*)'
)
_FIRST = re.compile(rb'"traceEvents": ?\[')
_SEAM = re.compile(rb"\},\s*\{")
# Far more than one event: what is longer is none, and need not be kept for its end.
_LONGEST_EVENT = 1 << 22


class _Event(msgspec.Struct, gc=False):
    ph: str = ""
    cat: str = ""
    tid: int | str = 0


_decoder = msgspec.json.Decoder(list[_Event])


class EventCounter:
    """Feed it a file's bytes in order, then `finish`. A feed holds the interpreter for a microsecond an event."""

    def __init__(self) -> None:
        self.events = 0
        self.kernels = 0
        self.operators: dict[str, int] = {}
        self._rest = b""

    @property
    def work(self) -> int:
        """Operators and kernels: what work leaves behind; a captured graph leaves kernels alone."""
        return self.kernels + sum(self.operators.values())

    def feed(self, chunk: bytes) -> None:
        """Count all events but the last one, whose end may be in the next chunk."""
        text = self._rest + chunk
        if len(text) > _LONGEST_EVENT or (at := _last_seam(text)) is None:
            self._rest = text
            if len(text) > _LONGEST_EVENT:
                self.finish()
            return
        self._count(text[: at + 1])
        self._rest = text[at + 2 :]

    def finish(self) -> EventCounter:
        """Count what is left."""
        self._count(self._rest)
        self._rest = b""
        return self

    def _count(self, text: bytes) -> None:
        """Whole events, perhaps with the file's head or tail around them, where they cannot be read as a list."""
        head = _FIRST.search(text, 0, 1 << 16) if self.events == 0 else None
        try:
            events = _decoder.decode(b"[" + text[head.end() if head else 0 :] + b"]")
        except (msgspec.DecodeError, UnicodeDecodeError):
            self._search(text)
            return
        self.events += sum(event.ph != "" for event in events)
        for event in events:
            if event.cat == "cpu_op":
                thread = str(event.tid)
                self.operators[thread] = self.operators.get(thread, 0) + 1
            elif event.cat == "kernel":
                self.kernels += 1

    def _search(self, text: bytes) -> None:
        self.events += len(_EVENT.findall(text))
        for category, thread in _WORK.findall(text):
            if category == b"kernel":
                self.kernels += 1
            else:
                key = thread.decode("ascii", "replace")
                self.operators[key] = self.operators.get(key, 0) + 1


def _last_seam(text: bytes) -> int | None:
    """Where the last event ends that another one follows; a name may look like such a place, which only costs time."""
    at = len(text)
    for _ in range(8):
        at = text.rfind(b"},", 0, at)
        if at < 0:
            return None
        if _SEAM.match(text, at):
            return at
    return None
