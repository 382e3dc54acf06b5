"""A reader must never meet half a file: everything a session holds appears whole or not at all.

A file is written beside its final name, synced and then renamed over it. Whatever fails, the temporary file goes.
"""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PART_SUFFIX = ".part"


@contextmanager
def atomic_path(final: Path, *, durable: bool = True) -> Iterator[Path]:
    """Yields a path in the same folder to write to; on success it becomes `final`, otherwise it is removed.

    The name starts with a dot and carries process and thread, so that two writers of one final name never share it.
    """
    part = final.with_name(f".{final.name}.{os.getpid()}-{threading.get_native_id()}{PART_SUFFIX}")
    try:
        yield part
        if durable:
            with part.open("rb") as handle:
                os.fsync(handle.fileno())
        part.replace(final)
        if durable:
            _sync_folder(final.parent)
    finally:
        part.unlink(missing_ok=True)


def write_atomic(final: Path, data: bytes, *, durable: bool = True) -> None:
    """Write a small file whole or not at all. Raises OSError (full disk, unwritable folder).

    What is not `durable` survives the process and not a power cut, and costs no wait for the disk.
    """
    with atomic_path(final, durable=durable) as part:
        part.write_bytes(data)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One process of this host at a time inside a folder; the lock dies with its holder."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    """The rename itself lives in the folder; without this a power cut may undo it."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
