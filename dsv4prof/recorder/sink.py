"""Where a rank's recording goes: one folder a session, one record a rank, nothing half-written, nothing shared.

Every rank writes only its own files, so that no two writers meet; the manifest is put together from the ranks' records.
A rank that dies leaves its last record behind, and `outcome: recording` in it says that it never finished.
"""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import msgspec

from dsv4prof.errors import OutputError
from dsv4prof.model.session import Outcome, RankCoordinates, RankRecord
from dsv4prof.recorder.atomic import atomic_path, write_atomic
from dsv4prof.recorder.wording import writable

_CHUNK = 1 << 20
# Kineto writes a space after a colon, torch's Python exporter does not.
_EVENT_MARKS = (b'"ph": "', b'"ph":"')
# What work leaves behind: an operator, or a kernel where a captured graph needs no operator.
_WORK_MARKS = tuple(
    b'"cat":%s"%s"' % (space, category) for space in (b" ", b"") for category in (b"cpu_op", b"kernel")
)
# A trace is written as JSON first (about 380 bytes an event) and then compressed beside it.
MIN_FREE_BYTES = 64 << 20


def rank_name(coordinates: RankCoordinates) -> str:
    """`rank5`, with every group coordinate that the rank alone does not tell: `rank5-tp1-dp1`.

    The global rank is always there, so two ranks of one session can never share a file.
    """
    groups = [(key, getattr(coordinates, key)) for key in ("tp", "dp", "pp", "ep")]
    known = [(key, value) for key, value in groups if value is not None]
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
    """One rank's record and trace file inside a session's folder. Raises OutputError when it cannot write."""

    def __init__(self, folder: Path, coordinates: RankCoordinates) -> None:
        self.folder = folder.absolute()
        self._name = rank_name(coordinates)
        self._record = RankRecord(
            coordinates=coordinates, outcome=Outcome.RECORDING, pid=os.getpid(), versions=installed_versions()
        )

    @property
    def record(self) -> RankRecord:
        return self._record

    @property
    def trace_path(self) -> Path:
        return self.folder / f"{self._name}.trace.json.gz"

    def preflight(self) -> None:
        """Space, permission, and no earlier trace of this rank that would be overwritten."""
        check_writable(self.folder)
        if self.trace_path.exists():
            raise OutputError(
                f"{self.trace_path} exists already", hint="record into a new session; no trace is overwritten"
            )

    def update(self, **changes: Any) -> RankRecord:
        """Change the record and write it, so that whoever looks after a crash finds the last state."""
        if changes.get("reason") is not None:
            changes["reason"] = writable(changes["reason"])
        self._record = msgspec.structs.replace(self._record, **changes)
        write_record(self.folder, self._record)
        return self._record

    def json_path(self) -> Path:
        """Where the uncompressed trace goes until it is compressed; hidden, so that nobody takes it for a result."""
        return self.folder / f".{self._name}.trace.json.part"

    def store_trace(self, json_file: Path) -> int:
        """Compress an exported file to its final name and note its size and number of events.

        Returns how many operators and kernels are in it.
        """
        events, work = _MarkCounter(_EVENT_MARKS), _MarkCounter(_WORK_MARKS)
        try:
            with atomic_path(self.trace_path) as part:
                _compress(json_file, part, (events, work))
        except OSError as error:
            raise _unwritable(self.trace_path, error) from error
        self.update(trace=self.trace_path.name, trace_bytes=self.trace_path.stat().st_size, events=events.found)
        return work.found


def record_path(folder: Path, rank: int) -> Path:
    return folder / f"rank{rank}.json"


def write_record(folder: Path, record: RankRecord) -> None:
    """Replace one rank's record atomically. Raises OutputError."""
    path = record_path(folder, record.coordinates.rank)
    try:
        write_atomic(path, msgspec.json.format(msgspec.json.encode(record)))
    except OSError as error:
        raise _unwritable(path, error) from error


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


class _MarkCounter:
    """Counts marks in a file that passes by in chunks. No mark may lie within another."""

    def __init__(self, marks: Sequence[bytes]) -> None:
        self.found = 0
        self._tails = dict.fromkeys(marks, b"")

    def feed(self, chunk: bytes) -> None:
        for mark, tail in self._tails.items():
            seen = tail + chunk
            self.found += seen.count(mark)
            # One byte too short for a mark to be counted twice.
            self._tails[mark] = seen[-(len(mark) - 1) :]


def _compress(source: Path, target: Path, counters: Sequence[_MarkCounter]) -> None:
    """gzip level 1 by isal: 14 times faster than torch's own `.json.gz`, which is level 9 line by line."""
    from isal import igzip

    with source.open("rb") as reader, igzip.open(target, "wb", compresslevel=1) as writer:
        while chunk := reader.read(_CHUNK):
            writer.write(chunk)
            for counter in counters:
                counter.feed(chunk)
