"""The tracks of one file and what its metadata events say of them, folded: one file repeats a name 310,046 times."""

from __future__ import annotations

from typing import Any

from dsv4prof.model.event import Track
from dsv4prof.model.trace import TrackInfo
from dsv4prof.trace.wire import WireEvent, decode_value

Key = int | str
_PROCESS = {
    "process_name": ("process_name", "name"),
    "process_labels": ("process_labels", "labels"),
    "process_sort_index": ("process_sort", "sort_index"),
}
_MAX_SORT = 2**31
_THREAD = {"thread_name": ("thread_name", "name"), "thread_sort_index": ("thread_sort", "sort_index")}


class TrackTable:
    """Remembers the last word of each metadata event."""

    def __init__(self) -> None:
        self._process: dict[Key, dict[str, Any]] = {}
        self._thread: dict[tuple[Key, Key], dict[str, Any]] = {}

    def describe(self, event: WireEvent) -> None:
        """Take a metadata event (phase M); kinds that no viewer shows are passed over.

        Raises ValueError when its arguments are no object that can be read.
        """
        if event.name not in _PROCESS and event.name not in _THREAD:
            return
        args = decode_value(event.args) if len(event.args) else {}
        if not isinstance(args, dict):
            raise ValueError("arguments that are no object")
        if event.name in _PROCESS:
            field, key = _PROCESS[event.name]
            self._process.setdefault(event.pid, {})[field] = _typed(field, args.get(key))
        else:
            field, key = _THREAD[event.name]
            self._thread.setdefault((event.pid, event.tid), {})[field] = _typed(field, args.get(key))

    def info(self, track: Track) -> TrackInfo:
        """All that was said of a track."""
        return TrackInfo(
            track=track, **self._process.get(track.pid, {}), **self._thread.get((track.pid, track.tid), {})
        )


def _typed(field: str, value: object) -> str | int | None:
    if value is None:
        return None
    if field.endswith("_sort"):
        return int(value) if isinstance(value, int | float) and -_MAX_SORT <= value < _MAX_SORT else None
    return str(value)
