"""Kineto's two marks of the recording window, which would fill two process rows a rank with nothing to see.

They travel in the merged file's own metadata, and come back when it is loaded.
"""

from __future__ import annotations

from dsv4prof.model.event import Instant, Track

_NAMES = ("Iteration Start: ", "Record Window End")


def marks_window(name: str, track: Track) -> bool:
    """Whether an instant without arguments, of that name and on that track, is one of them."""
    return isinstance(track.pid, str) and name.startswith(_NAMES)


def is_window_marker(point: Instant) -> bool:
    """The same for an instant in memory."""
    return point.args is None and marks_window(point.name, point.track)
