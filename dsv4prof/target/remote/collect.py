"""Wait, bounded, until every rank's file is there and whole.

A server writes its `.json.gz` under the final name from the first byte on, so that a file which is there may be half a
file: it is taken when its size rests and its last gzip checksum is right.
"""

from __future__ import annotations

import re
import stat
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
from isal import isal_zlib

from dsv4prof.recorder.counting import EventCounter
from dsv4prof.target.remote.expected import NamedFile

Key = tuple[int, str]
_CHUNK = 1 << 18
_DAMAGE: Any = isal_zlib.error
_POLL_S = 0.25
# SGLang's names of forwards; a draft's forward is a part of the step that it belongs to.
_STEP = re.compile(rb'"cat": ?"user_annotation",\s*"name": ?"step\[(?!DRAFT|IDLE)')
_LONGEST_STEP = 128


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A rank's file of one window; `whole` when all of it was written."""

    path: Path
    file: NamedFile
    bytes: int
    whole: bool
    events: int = 0
    steps: int = 0
    operators: dict[str, int] = {}

    @property
    def key(self) -> Key:
        return self.file.coordinates.rank, self.file.window


class Collector:
    """Looks at a folder again and again. `named` tells whose a file is, None for one that is not of this recording.

    `expected` is every (rank, window), or None when nobody can tell how many there will be.
    """

    def __init__(
        self, folder: Path, named: Callable[[str], NamedFile | None], expected: frozenset[Key] | None
    ) -> None:
        self._folder = folder
        self._named = named
        self._expected = expected
        self._seen: dict[Path, tuple[int, int]] = {}
        self._examined: dict[Path, tuple[int, int]] = {}
        self.found: dict[Key, Found] = {}

    @property
    def complete(self) -> bool:
        """Whether everything that is expected is there and whole."""
        whole = {key for key, found in self.found.items() if found.whole}
        return self._expected is not None and self._expected <= whole

    @property
    def missing(self) -> list[Key]:
        return sorted((self._expected or frozenset()) - set(self.found))

    def wait(
        self, patience: float, *, quiet: float | None = None, over: Callable[[], bool] = lambda: False
    ) -> None:
        """Until complete, or nothing has changed for `patience` seconds; `quiet` ones when no file is half there.

        Also until `over` says that no more will come.
        """
        changed = time.monotonic()
        while True:
            if self.look():
                changed = time.monotonic()
            growing = any(not found.whole for found in self.found.values())
            allowed = patience if quiet is None or growing else quiet
            if self.complete or time.monotonic() - changed >= allowed or over():
                return
            time.sleep(min(_POLL_S, allowed))

    def look(self) -> bool:
        """Look once; whether any file is new, has grown, or has become whole."""
        changed = False
        for path in files_in(self._folder):
            named = self._named(path.name)
            if named is None or self._taken(path, named):
                continue
            try:
                state = path.stat()
            except OSError:
                continue
            now = (state.st_size, state.st_mtime_ns)
            if self._seen.get(path) != now:
                self._seen[path] = now
                self._note(Found(path=path, file=named, bytes=state.st_size, whole=False))
                changed = True
            elif self._examined.get(path) != now:
                self._examined[path] = now
                found = examine(path, named)
                changed |= found.whole
                self._note(found)
        return changed

    def _taken(self, path: Path, named: NamedFile) -> bool:
        """Whether another file came first for the same rank and window: which is right, nobody can tell."""
        first = self.found.get((named.coordinates.rank, named.window))
        return first is not None and first.path != path

    def _note(self, found: Found) -> None:
        self.found[found.key] = found


def files_in(folder: Path) -> list[Path]:
    """The plain files of a folder that may vanish meanwhile: reading a FIFO or a device would never end."""
    try:
        entries = sorted(folder.iterdir())
    except OSError:
        return []
    return [path for path in entries if _is_plain(path)]


def _is_plain(path: Path) -> bool:
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return False


def examine(path: Path, named: NamedFile) -> Found:
    """Read a file through once: whether it is whole, and what is in it."""
    counter, steps = EventCounter(), _StepCounter()
    size, whole = 0, False
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            whole = _inflate(file, counter, steps)
    except OSError:
        whole = False
    counter.finish()
    return Found(
        path=path, file=named, bytes=size, whole=whole, events=counter.events, steps=steps.finish().found,
        operators=counter.operators,
    )  # fmt: skip


def _inflate(file: BinaryIO, counter: EventCounter, steps: _StepCounter) -> bool:
    """Decompress as far as it goes; True when it ends with the end of a gzip member whose checksum fits."""
    stream = isal_zlib.decompressobj(isal_zlib.MAX_WBITS | 16)
    while chunk := file.read(_CHUNK):
        while chunk:
            try:
                text = stream.decompress(chunk)
            except _DAMAGE:
                return False
            counter.feed(text)
            steps.feed(text)
            chunk = stream.unused_data
            if stream.eof and chunk:
                stream = isal_zlib.decompressobj(isal_zlib.MAX_WBITS | 16)
    return stream.eof


class _StepCounter:
    """Counts SGLang's step ranges in text that passes by in chunks."""

    def __init__(self) -> None:
        self.found = 0
        self._tail = b""

    def feed(self, chunk: bytes) -> None:
        text = self._tail + chunk
        place = max(0, len(text) - _LONGEST_STEP)
        # What begins in the tail is counted with the next chunk: a match may end there.
        self.found += sum(1 for match in _STEP.finditer(text) if match.start() < place)
        self._tail = text[place:]

    def finish(self) -> _StepCounter:
        self.found += len(_STEP.findall(self._tail))
        self._tail = b""
        return self
