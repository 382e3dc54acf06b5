"""Where a rank's recording goes: one folder a session, one record a rank, nothing half-written, nothing shared.

Every rank writes only its own files, so that no two writers meet; the manifest is put together from the ranks' records.
A rank that dies leaves its last record behind, and `outcome: recording` in it says that it never finished.
"""

from __future__ import annotations

import importlib
import os
import platform
import re
import shutil
import socket
import threading
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

import msgspec

from dsv4prof.errors import OutputError
from dsv4prof.model.session import Outcome, RankCoordinates, RankRecord, WindowRecord
from dsv4prof.recorder.atomic import atomic_path, locked, write_atomic
from dsv4prof.recorder.counting import EventCounter
from dsv4prof.recorder.wording import writable

# Small, because the interpreter belongs to a chunk while its events are counted, and a server works beside it.
_CHUNK = 1 << 18
_NO_NAME = re.compile(r"[^A-Za-z0-9.]+")
# A trace is written as JSON first (about 380 bytes an event) and then compressed beside it.
MIN_FREE_BYTES = 64 << 20


def rank_name(coordinates: RankCoordinates) -> str:
    """`rank5`, with every group coordinate that the rank alone does not tell: `rank5-tp1-dp1`.

    A group whose size is known to be 1 says nothing. The global rank is always there, so two ranks of one session can
    never share a file.
    """
    groups = [(key, getattr(coordinates, key)) for key in ("tp", "dp", "pp", "ep")]
    known = [(key, value) for key, value in groups if value is not None and coordinates.sizes.get(key) != 1]
    told = [] if len(known) == 1 and known[0][1] == coordinates.rank else known
    return "-".join([f"rank{coordinates.rank}", *(f"{key}{value}" for key, value in told)])


def installed_versions() -> dict[str, str]:
    """Versions that decide what a trace looks like, read from package metadata: nothing is imported."""
    versions = {"python": platform.python_version()}
    for package in ("dsv4prof", "torch"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return versions


def check_writable(folder: Path, *, need_bytes: int = MIN_FREE_BYTES) -> None:
    """Refuse before a run what would fail after it. Creates `folder`. Raises OutputError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe = folder / f".probe-{os.getpid()}"
        try:
            probe.write_bytes(b"x")
        finally:
            probe.unlink(missing_ok=True)
        free = shutil.disk_usage(folder).free
    except (OSError, ValueError) as error:
        # A ValueError is a name that no file system takes: a NUL or a lone surrogate in it.
        words = (isinstance(error, OSError) and error.strerror) or str(error)
        raise OutputError(
            f"cannot write to {str(folder)!r}: {words}", hint="name another folder for sessions"
        ) from error
    if free < need_bytes:
        raise OutputError(
            f"only {free >> 20} MiB are free at {folder}, a recording needs {need_bytes >> 20} MiB",
            hint="free some space or name another folder for sessions",
        )


class RankSink:
    """One rank's record and files inside a session's folder. Any thread may use it; OutputError when it cannot write.

    A second living process that calls itself the same rank gets names of its own instead of the first one's.
    """

    def __init__(self, folder: Path, coordinates: RankCoordinates) -> None:
        self.folder = folder.absolute()
        self._lock = threading.RLock()
        self._twin = ""
        self._claimed = False
        self._record = RankRecord(
            coordinates=coordinates, outcome=Outcome.RECORDING, pid=os.getpid(), versions=installed_versions()
        )

    @property
    def record(self) -> RankRecord:
        return self._record

    @property
    def name(self) -> str:
        """What every file of this rank begins with."""
        return rank_name(self._record.coordinates) + self._twin

    def window(self, name: str) -> WindowSink:
        """The part of one window, announced in the record when it is first updated."""
        return WindowSink(self, name)

    def preflight(self, names: tuple[str, ...] = ("",)) -> None:
        """Space, permission, and no earlier trace of this rank's windows that would be overwritten."""
        # Here rather than at the first save, which begins in the program's loop.
        importlib.import_module("isal.igzip")
        check_writable(self.folder)
        self._refuse_a_second_recording()
        self._claim()
        for name in names:
            if (path := self.window(name).trace_path).exists():
                raise OutputError(
                    f"{path} exists already", hint="record into a new session; no trace is overwritten"
                )

    def update(self, **changes: Any) -> RankRecord:
        """Change the record and write it, so that whoever looks after a crash finds the last state."""
        if changes.get("reason") is not None:
            changes["reason"] = writable(changes["reason"])
        with self._lock:
            self._claim()
            self._record = msgspec.structs.replace(self._record, **changes)
            # The last word has to survive a power cut; a step of the program waits for the others.
            final = self._record.outcome is not Outcome.RECORDING
            path = self.folder / f"rank{self._record.coordinates.rank}{self._twin}.json"
            _write(path, self._record, durable=final)
            return self._record

    def update_window(self, name: str, **changes: Any) -> WindowRecord:
        """Change one window's record; the first change adds it."""
        if changes.get("reason") is not None:
            changes["reason"] = writable(changes["reason"])
        with self._lock:
            windows = list(self._record.windows)
            place = next((at for at, window in enumerate(windows) if window.name == name), len(windows))
            if place == len(windows):
                windows.append(WindowRecord(name=name))
            windows[place] = msgspec.structs.replace(windows[place], **changes)
            self.update(windows=windows)
            return windows[place]

    def _is_mine(self, record: RankRecord) -> bool:
        """This process's own: two containers may have equal pids."""
        here = socket.gethostname()
        hosts = {each.coordinates.host or here for each in (record, self._record)}
        return record.pid == os.getpid() and len(hosts) == 1

    def _refuse_a_second_recording(self) -> None:
        """Raises OutputError while this process records, or still saves, the same rank of the same session."""
        if self._claimed:
            return
        taken = _read(record_path(self.folder, self._record.coordinates.rank))
        if taken is not None and self._is_mine(taken) and taken.outcome is Outcome.RECORDING:
            raise OutputError(
                f"this process already records rank {taken.coordinates.rank} into {self.folder}",
                hint="wait until that is saved, or record into a new session",
            )

    def _claim(self) -> None:
        """Take the rank's name, or another when somebody who lives has it."""
        if self._claimed or not self.folder.is_dir():
            return
        rank = self._record.coordinates.rank
        with locked(self.folder):
            taken = _read(record_path(self.folder, rank))
            if taken is not None and not self._is_mine(taken) and _works_here(taken):
                self._twin = f"-{_NO_NAME.sub('-', socket.gethostname())}-pid{os.getpid()}"
            self._claimed = True
            _write(self.folder / f"rank{rank}{self._twin}.json", self._record)


class WindowSink:
    """One window's files: `rank0.trace.json.gz`, or `rank0.prefill.trace.json.gz` for one of several."""

    def __init__(self, rank: RankSink, name: str) -> None:
        self.name = name
        self._rank = rank

    @property
    def folder(self) -> Path:
        return self._rank.folder

    @property
    def base(self) -> Path:
        """What every file of this window begins with."""
        return self.folder / (f"{self._rank.name}.{self.name}" if self.name else self._rank.name)

    @property
    def trace_path(self) -> Path:
        return self.base.with_name(f"{self.base.name}.trace.json.gz")

    @property
    def json_path(self) -> Path:
        """Where the uncompressed trace goes until it is compressed; hidden, so that nobody takes it for a result."""
        return self.base.with_name(f".{self.base.name}.trace.json.part")

    @property
    def record(self) -> WindowRecord:
        return self._rank.record.window(self.name) or WindowRecord(name=self.name)

    def update(self, **changes: Any) -> WindowRecord:
        return self._rank.update_window(self.name, **changes)

    def store_trace(self, json_file: Path) -> EventCounter:
        """Compress an exported file to its final name and note its size and events; what was counted in it."""
        counter = EventCounter()
        try:
            with atomic_path(self.trace_path) as part:
                _compress(json_file, part, counter)
        except OSError as error:
            raise _unwritable(self.trace_path, error) from error
        self.update(
            trace=self.trace_path.name,
            trace_bytes=self.trace_path.stat().st_size,
            events=counter.events,
            events_by_thread=counter.operators,
        )
        return counter


def record_path(folder: Path, rank: int) -> Path:
    return folder / f"rank{rank}.json"


def write_record(folder: Path, record: RankRecord) -> None:
    """Replace one rank's record atomically. Raises OutputError."""
    _write(record_path(folder, record.coordinates.rank), record)


def _write(path: Path, record: RankRecord, *, durable: bool = True) -> None:
    try:
        write_atomic(path, msgspec.json.format(msgspec.json.encode(record)), durable=durable)
    except OSError as error:
        raise _unwritable(path, error) from error


def _read(path: Path) -> RankRecord | None:
    """A record as it is; None when it is absent or none."""
    with suppress(FileNotFoundError, msgspec.DecodeError):
        return msgspec.json.decode(path.read_bytes(), type=RankRecord)
    return None


def _works_here(record: RankRecord) -> bool:
    """Whether the process of a record lives on this host; of another host's nobody can tell, and it is believed."""
    import psutil

    if record.coordinates.host not in (None, socket.gethostname()):
        return True
    return record.pid is not None and psutil.pid_exists(record.pid)


def require_folder(folder: Path) -> None:
    """Raises OutputError when a session's folder was removed under the recording."""
    if not folder.is_dir():
        raise OutputError(
            f"the session's folder is gone: {folder}", hint="something removed it during the recording; record again"
        )


def _unwritable(path: Path, error: OSError) -> OutputError:
    try:
        require_folder(path.parent)
    except OutputError as gone:
        return gone
    return OutputError(f"cannot write {path}: {error.strerror or error}", hint="is the disk full?")


def _compress(source: Path, target: Path, counter: EventCounter) -> None:
    """gzip level 1 by isal: 14 times faster than torch's own `.json.gz`, which is level 9 line by line."""
    from isal import igzip

    with source.open("rb") as reader, igzip.open(target, "wb", compresslevel=1) as writer:
        while chunk := reader.read(_CHUNK):
            writer.write(chunk)
            counter.feed(chunk)
    counter.finish()
