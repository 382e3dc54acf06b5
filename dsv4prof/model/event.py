"""The events of one rank's trace, times as integer nanoseconds on that rank's clock.

`args` stays raw JSON bytes: a merge copies it, and only an analysis that asks for one key decodes it.
"""

from __future__ import annotations

from typing import Any

import msgspec


class Track(msgspec.Struct, frozen=True, gc=False):
    """Where a slice is drawn inside one file: Kineto's process (an integer or a word) and thread or stream."""

    pid: int | str
    tid: int | str


class Slice(msgspec.Struct, frozen=True, gc=False):
    """A complete event (Chrome phase X). `start_ns` is absolute: base time applied. `dur_ns` >= 0."""

    name: str
    category: str
    track: Track
    start_ns: int
    dur_ns: int
    args: msgspec.Raw | None = None

    @property
    def end_ns(self) -> int:
        return self.start_ns + self.dur_ns

    def arg(self, key: str, default: Any = None) -> Any:
        """One value of `args`, decoded now; `default` when it is absent."""
        if self.args is None:
            return default
        return msgspec.json.decode(self.args).get(key, default)


class Instant(msgspec.Struct, frozen=True, gc=False):
    """A point in time (Chrome phase i), for example a `[memory]` record."""

    name: str
    category: str
    track: Track
    at_ns: int
    scope: str = "t"
    args: msgspec.Raw | None = None


class Counter(msgspec.Struct, frozen=True, gc=False):
    """A sampled value (Chrome phase C)."""

    name: str
    track: Track
    at_ns: int
    args: msgspec.Raw | None = None


class FlowPoint(msgspec.Struct, frozen=True, gc=False):
    """One end of an arrow (Chrome phases s, t, f). `id` is unique only inside one file."""

    ph: str
    name: str
    category: str
    track: Track
    at_ns: int
    id: int | str
    binding: str | None = None


class AsyncPoint(msgspec.Struct, frozen=True, gc=False):
    """One point of an asynchronous span (Chrome phases b, n, e). `id` is unique only inside one file."""

    ph: str
    name: str
    category: str
    track: Track
    at_ns: int
    id: int | str
    args: msgspec.Raw | None = None
