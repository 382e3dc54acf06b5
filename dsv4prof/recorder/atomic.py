"""A reader must never meet half a file: everything a session holds appears whole or not at all.

A file is written beside its final name, synced and then renamed over it. Whatever fails, the temporary file goes.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

PART_SUFFIX = ".part"


@contextmanager
def atomic_path(final: Path) -> Iterator[Path]:
    """Yields a path in the same folder to write to; on success it becomes `final`, otherwise it is removed.

    The name starts with a dot and carries the process id, so that two writers of one final name never share it.
    """
    part = final.with_name(f".{final.name}.{os.getpid()}{PART_SUFFIX}")
    try:
        yield part
        with part.open("rb") as handle:
            os.fsync(handle.fileno())
        part.replace(final)
        _sync_folder(final.parent)
    finally:
        part.unlink(missing_ok=True)


def write_atomic(final: Path, data: bytes) -> None:
    """Write a small file whole or not at all. Raises OSError (full disk, unwritable folder)."""
    with atomic_path(final) as part:
        part.write_bytes(data)


def _sync_folder(folder: Path) -> None:
    """The rename itself lives in the folder; without this a power cut may undo it."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
