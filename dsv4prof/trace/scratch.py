"""Scratch folders beside an output: what is written appears whole or not at all, and what a killed merge left goes.

A live owner holds a lock on its folder. Process numbers prove nothing: nodes and containers share folders.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from dsv4prof.errors import OutputError

_PREFIX = ".dsv4prof-merge-"


@contextmanager
def scratch_folder(parent: Path | None) -> Iterator[Path]:
    """A folder of one's own in `parent` (None: the system's), gone at the end. Raises OSError when there is none."""
    if parent is not None:
        _remove_stale(parent)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        # A file system without locks: nobody else can lock it either, and nobody removes it.
        with suppress(OSError):
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


@contextmanager
def whole_or_absent(target: Path) -> Iterator[Path]:
    """Yields a path to write to, which then becomes `target`. Raises OutputError when the folder cannot be written."""
    try:
        with scratch_folder(target.parent) as folder:
            path = folder / target.name
            yield path
            path.replace(target)
    except OSError as error:
        raise OutputError(
            f"cannot write {target}: {error.strerror or error}", hint="check the folder, its permissions and free space"
        ) from error


def _remove_stale(parent: Path) -> None:
    for folder in parent.glob(f"{_PREFIX}*"):
        with suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY)
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(descriptor)
