"""RPD (AMD's rocmProfileData) traces a process into an SQLite file, one for as long as the process lives.

Its Python side is `rpdTracerControl`: the file's name can be said once, before the tracer is loaded; after that, every
start adds to the same file. A window's `.rpd` is therefore a copy of what there is when the window ends, and holds the
earlier windows too. Written by the public names of rocmProfileData, tested with stand-ins; not run on AMD hardware.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sqlite3
import tempfile
from contextlib import closing, suppress
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

from dsv4prof.errors import LifetimeError, OutputError
from dsv4prof.recorder.atomic import atomic_path
from dsv4prof.recorder.backends import Remains
from dsv4prof.recorder.backends.silent import SilentSource

_HINT = "it comes with RPD (github.com/ROCm/rocmProfileData: make install), not from PyPI"
SUFFIX = ".rpd"


class RpdTracer(SilentSource):
    """RPD's tracer, switched on for the window."""

    # RPD knows one file a process, whoever asks.
    _file: ClassVar[Path | None] = None

    def __init__(self) -> None:
        super().__init__()
        self._tracer: Any = None
        self._open = False

    def warm_up(self) -> None:
        """Load the tracer. Raises LifetimeError where it is absent or does not load."""
        if self._tracer is not None:
            return
        try:
            control = import_module("rpdTracerControl").rpdTracerControl
        except (ImportError, AttributeError) as error:
            raise LifetimeError("RPD's tracer is not installed: no module rpdTracerControl", hint=_HINT) from error
        try:
            if RpdTracer._file is None:
                RpdTracer._file = _named_file(control)
            self._tracer = control()
        except (OSError, RuntimeError, Warning, AttributeError, TypeError) as error:
            raise LifetimeError(f"RPD's tracer could not be loaded: {error}", hint=_HINT) from error

    def prepare(self) -> None:
        self.warm_up()

    def start(self) -> None:
        self._tracer.start()
        self._open = True

    def stop(self) -> None:
        if not self._open:
            return
        self._open = False
        self._tracer.stop()
        # Older ones write at once and have nothing to flush.
        with suppress(AttributeError):
            self._tracer.flush()

    def export_files(self, base: Path) -> dict[str, Path]:
        source, target = RpdTracer._file, base.with_name(base.name + SUFFIX)
        if source is None:
            return {}
        try:
            with (
                atomic_path(target) as part,
                closing(sqlite3.connect(f"{source.as_uri()}?mode=ro", uri=True)) as old,
                closing(sqlite3.connect(part)) as new,
            ):
                old.backup(new)
        except (sqlite3.Error, OSError) as error:
            raise OutputError(f"RPD's file could not be saved: {error}", hint=f"RPD wrote to {source}") from error
        return {"rpd": target}

    def abandon(self) -> None:
        self._tracer = None
        self._open = False

    def release(self, *, keep: bool = False) -> list[Remains]:
        self.stop()
        self._tracer = None
        return []


def _named_file(control: Any) -> Path:
    """Where this process's RPD file is: as the user said, or in a folder of our own that goes with the process."""
    if named := os.environ.get("RPDT_FILENAME"):
        return Path(named).absolute()
    folder = tempfile.mkdtemp(prefix="dsv4prof-rpd-")
    owner = os.getpid()

    def remove() -> None:
        # RPD's file stays open past this; only its name goes.
        if os.getpid() == owner:
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    path = Path(folder) / f"process-{owner}{SUFFIX}"
    control.setFilename(name=str(path), append=False)
    return path
