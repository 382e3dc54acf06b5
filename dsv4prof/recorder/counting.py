"""What is in a trace that passes by in chunks: how many events, and which thread's operators and how many kernels.

An empty trace looks like any other file. Recording is per thread, so a profiler that was started beside the work saves
a whole, valid trace of nothing (sglang-omni #1304); only a count of operators by thread tells.
"""

from __future__ import annotations

import re

# Kineto writes a space after a colon, torch's Python exporter does not; a quote inside a name is escaped, so neither
# mark can lie in one.
_EVENT = re.compile(rb'"ph": ?"')
_WORK = re.compile(
    rb'"cat": ?"(cpu_op|kernel)",\s*"name": ?"(?:[^"\\]|\\.)*",\s*"pid": ?"?[^,"]*"?,\s*"tid": ?"?([^,"]*)'
)
_KERNEL = b"kernel"
# Far more than one event: what is longer is none, and need not be kept for its end.
_LONGEST_EVENT = 1 << 22


class EventCounter:
    """Feed it a file's bytes in order, then `finish`."""

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
        at = max(0, text.rfind(b'"ph"'))
        if len(text) - at > _LONGEST_EVENT:
            at = len(text)
        self._count(text[:at])
        self._rest = text[at:]

    def finish(self) -> EventCounter:
        """Count what is left."""
        self._count(self._rest)
        self._rest = b""
        return self

    def _count(self, text: bytes) -> None:
        self.events += len(_EVENT.findall(text))
        for category, thread in _WORK.findall(text):
            if category == _KERNEL:
                self.kernels += 1
            else:
                key = thread.decode("ascii", "replace")
                self.operators[key] = self.operators.get(key, 0) + 1
