"""What an audit of source is about: what was named, what has to be read beside it, and how a person finds a file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from dsv4prof.errors import InputError

# What marks a folder as one project, so that all of it may be read to understand a part.
_PROJECT = ("pyproject.toml", "setup.py", "setup.cfg", ".git")


class Part(msgspec.Struct, frozen=True):
    """One run of the detector: everything below `root` is context, `paths` is what to report on (empty: all)."""

    root: Path
    paths: tuple[Path, ...] = ()

    @property
    def folder(self) -> Path:
        """What the detector's paths are relative to."""
        return self.root.parent if self.root.is_file() else self.root


class Targets(msgspec.Struct, frozen=True):
    """`root` is absolute and what a report's paths are relative to: the folder that was named, or the common one."""

    root: Path
    parts: tuple[Part, ...]
    here: Path

    def shown(self, path: str) -> str:
        """A file of the root as it is called from the working directory, or in full when it lies elsewhere."""
        full = os.path.normpath(os.path.join(self.root, path))  # noqa: PTH118  ten thousand times a report
        here = str(self.here)
        if full == here:
            return "."
        return printable(full.removeprefix(here.rstrip(os.sep) + os.sep).replace(os.sep, "/"))

    def read(self, path: str) -> bytes | None:
        """A file; None when it cannot be read, which the audit itself has reported."""
        try:
            return (self.root / path).read_bytes()
        except OSError:
            return None


def targets(paths: Sequence[str], here: Path | None = None) -> Targets:
    """Raises InputError for a path that is not there."""
    working = Path.cwd() if here is None else here
    given = list(paths) or ["."]
    named = [Path(os.path.normpath(working / path)) for path in given]
    for text, path in zip(given, named, strict=True):
        if not path.exists():
            raise InputError(f"there is no file or folder {text}", hint="name Python files, or folders that hold some")
    root = Path(os.path.commonpath([str(path if path.is_dir() else path.parent) for path in named]))
    return Targets(root, _parts(root, tuple(dict.fromkeys(named))), working)


def _parts(root: Path, named: tuple[Path, ...]) -> tuple[Part, ...]:
    """A project or package is read as a whole, so that calls are followed out of what was named; other folders are not:
    the common folder of two paths can be a disk."""
    if root in named:
        return (Part(root),)
    package = _package(root)
    if package is not None:
        return (Part(package, named),)
    if any((root / name).exists() for name in _PROJECT):
        return (Part(root, named),)
    return tuple(Part(path) for path in named)


def _package(folder: Path) -> Path | None:
    """The outermost package that `folder` is, or lies in."""
    found = None
    while (folder / "__init__.py").is_file():
        found, folder = folder, folder.parent
    return found


def printable(path: str) -> str:
    """A path in which bytes that are no UTF-8, which a report cannot hold, are marked."""
    return path if path.isascii() else path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def decode(data: bytes) -> str | None:
    """Source text by its byte order mark or coding line; None when it is no text. Line ends become newlines."""
    import io
    import tokenize

    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        text = data.decode(encoding)
    except (SyntaxError, LookupError, UnicodeDecodeError):
        return None
    return text.replace("\r\n", "\n").replace("\r", "\n")
