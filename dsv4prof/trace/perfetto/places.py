"""Which pid and tid a track of a Perfetto file stands for, and what JSON says of it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dsv4prof.trace.perfetto.records import Described

Place = tuple[int | str, int | str]
_OWN_TID = 1_000_000_000
_DEEP = 64


class Places:
    """Places by track. `own` are the notes of our writer, which say them outright; others are told by descriptors."""

    def __init__(self, tracks: dict[int, Described], own: list[dict[str, Any]]) -> None:
        self._tracks = tracks
        self._known: dict[int, Place] = {}
        self._rows: list[list[Any]] = []
        self.extras: dict[int, list[Any]] = {}
        for note in own:
            for row in note.get("rows", ()):
                self._known[row[0]] = (row[1], row[2])
                self._rows.append(row)
            for uuid, *content in note.get("tracks", ()):
                self.extras[uuid] = content
                self._known[uuid] = (content[1], content[2])
        self._made: dict[int, int] = {}

    def __getitem__(self, uuid: int) -> Place:
        place = self._known.get(uuid)
        if place is None:
            place = self._known[uuid] = self._told(uuid)
        return place

    def name(self, uuid: int) -> str:
        track = self._tracks.get(uuid)
        return track.name if track is not None else ""

    def described(self) -> Iterator[tuple[str, Place, dict[str, Any]]]:
        """(what, place, arguments) of the metadata events that a JSON trace would have."""
        seen: set[int | str] = set()
        for _, pid, tid, process, labels, sort, thread, thread_sort in self._rows:
            if pid in seen:
                process = labels = sort = None
            seen.add(pid)
            yield from _sentences((pid, tid), process, labels, sort, thread, thread_sort)
        if self._rows:
            return
        for uuid, track in self._tracks.items():
            place = self[uuid]
            if track.process is not None:
                labels = ",".join(track.labels) or None
                yield from _sentences(place, track.process[1] or None, labels, track.process_sort, None, None)
            elif not track.counter:
                name = track.name or (track.thread[2] if track.thread else "")
                yield from _sentences(place, None, None, None, name or None, track.thread_sort)

    def _told(self, uuid: int) -> Place:
        track = self._tracks.get(uuid)
        if track is not None and track.thread is not None:
            return track.thread[0], track.thread[1]
        if track is not None and track.process is not None:
            return track.process[0], 0
        return self._pid(uuid), self._made.setdefault(uuid, _OWN_TID + len(self._made))

    def _pid(self, uuid: int) -> int | str:
        """The process around a track, or the name of the outermost track."""
        name = ""
        for _ in range(_DEEP):
            track = self._tracks.get(uuid)
            if track is None:
                break
            if track.process is not None:
                return track.process[0]
            if track.thread is not None:
                return track.thread[0]
            name = track.name or name
            uuid = track.parent
        return name or "trace"


def _sentences(
    place: Place,
    process: str | None,
    labels: str | None,
    sort: int | None,
    thread: str | None,
    thread_sort: int | None,
) -> Iterator[tuple[str, Place, dict[str, Any]]]:
    for what, key, value in (
        ("process_name", "name", process),
        ("process_labels", "labels", labels),
        ("process_sort_index", "sort_index", sort),
        ("thread_name", "name", thread),
        ("thread_sort_index", "sort_index", thread_sort),
    ):
        if value is not None:
            yield what, place, {key: value}
