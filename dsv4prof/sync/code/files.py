"""Which files an audit reads, and their text."""

from __future__ import annotations

import fnmatch
import io
import os
import tokenize
from pathlib import Path

from dsv4prof.sync.code.options import AuditOptions

# Folders that hold no source of the project: environments, builds, caches of tools.
SKIPPED = frozenset({"__pycache__", "node_modules", "site-packages", "build", "dist", "venv", "env"})


def discover(root: Path, options: AuditOptions) -> list[str]:
    """Relative paths with forward slashes, sorted. A root that is a file gives its name."""
    if root.is_file():
        return [root.name]
    found: list[str] = []
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in SKIPPED and not name.startswith(".")]
        where = os.path.relpath(folder, root).replace(os.sep, "/")
        prefix = "" if where == "." else where + "/"
        # Regular files, or links to them: a pipe would be waited for without end.
        found.extend(prefix + name for name in names if name.endswith(".py") and Path(folder, name).is_file())
    return sorted(path for path in found if not excluded(path, options.exclude))


def overlaid(paths: list[str], options: AuditOptions) -> list[str]:
    """The paths that there would be if `options.sources` were written."""
    if not options.sources:
        return paths
    gone = {path for path, text in options.sources.items() if text is None}
    come = {path for path, text in options.sources.items() if text is not None and not excluded(path, options.exclude)}
    return sorted((set(paths) | come) - gone)


def excluded(path: str, globs: tuple[str, ...]) -> bool:
    """A glob hits the path, its name, or a folder above it."""
    parts = path.split("/")
    heads = ["/".join(parts[: count + 1]) for count in range(len(parts))]
    return any(fnmatch.fnmatchcase(head, glob.rstrip("/")) for glob in globs for head in (*heads, parts[-1]))


def wanted(files: list[str], root: Path, options: AuditOptions) -> list[str]:
    """Those of `files` to report on: all, or those below `options.paths`."""
    if not options.paths or root.is_file():
        return files
    heads = []
    for path in options.paths:
        whole = path if path.is_absolute() else (root / path if (root / path).exists() else path.absolute())
        heads.append(os.path.relpath(whole.resolve(), root.resolve()).replace(os.sep, "/"))
    if "." in heads:
        return files
    return [path for path in files if any(path == head or path.startswith(head + "/") for head in heads)]


def read(root: Path, path: str, options: AuditOptions) -> bytes:
    """Raises OSError."""
    replaced = options.sources.get(path)
    if replaced is not None:
        return replaced
    return place(root, path).read_bytes()


def place(root: Path, path: str) -> Path:
    """Where a relative path lies; a root that is a file stands for itself."""
    if root.is_file():
        return root if path == root.name else root.parent / path
    return root / path


def decode(data: bytes) -> str:
    """The text by its coding line, each line ended by a newline. Raises SyntaxError or UnicodeDecodeError."""
    head = data[:200]
    if b"coding" not in head and not head.startswith(b"\xef\xbb\xbf"):
        text = data.decode("utf-8")
    else:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        text = data.decode(encoding)
    return text.replace("\r\n", "\n").replace("\r", "\n") if "\r" in text else text
