"""Modules of the enclosing package that the audited files import: read for what they define, never reported on.

`audit code pkg/layers` sees a class of pkg/batch.py as an audit of all of pkg does. Imports are followed once, and on
through packages, which pass names on; and only into folders above the root whose name the import starts with.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from dsv4prof.sync.code.facts import Module

# Further on it costs as much as an audit of the whole package.
_DEPTH = 3
_MOST = 200


class Folders:
    """What lies in folders, asked of the disk once each: imports name the same few thousands of times."""

    def __init__(self) -> None:
        self._names: dict[Path, frozenset[str]] = {}

    def has(self, file: Path) -> bool:
        """Whether there is a file of this path; a folder called x.py counts, and cannot be read later."""
        return file.name in self.names(file.parent)

    def names(self, folder: Path) -> frozenset[str]:
        found = self._names.get(folder)
        if found is None:
            try:
                found = frozenset(os.listdir(folder))  # noqa: PTH208  names alone, without a Path for each
            except OSError:
                found = frozenset()
            self._names[folder] = found
        return found


def context(
    root: Path, modules: Iterable[Module], read: Callable[[str, str], Module], folders: Folders
) -> dict[str, Module]:
    """Facts by path relative to the root (`../batch.py`). `read` makes them from a path and a dotted name."""
    base = (root if root.is_dir() else root.parent).resolve()
    tops = {folder.name: folder for folder in reversed(base.parents) if folder.name.isidentifier()}
    tops.setdefault(base.name, base)
    inside = tuple(
        ".".join((name, *base.relative_to(folder).parts, "")) for name, folder in tops.items() if folder != base
    )
    found: dict[str, Module] = {}
    layer = list(modules)
    seen: set[str] = set()
    for _ in range(_DEPTH):
        following: list[Module] = []
        for name in sorted({name for module in layer for name in (*module.imports.values(), *module.stars)} - seen):
            seen.add(name)
            if name.startswith(inside):
                continue
            place = _place(name, tops, folders)
            if place is None or base in place[0].parents:
                continue
            path = os.path.relpath(place[0], base).replace(os.sep, "/")
            if path not in found and len(found) < _MOST:
                found[path] = read(path, place[1])
                following.append(found[path])
        layer = following
    return found


def _place(name: str, tops: dict[str, Path], folders: Folders) -> tuple[Path, str] | None:
    """The file that a dotted name, or the longest head of it, means, and the module's name."""
    parts = name.split(".")
    top = tops.get(parts[0])
    if top is None or len(parts) < 2:
        return None
    # Down as far as there are folders; what follows are names within a module.
    folder, depth = top, 1
    while (
        depth < len(parts)
        and parts[depth] in folders.names(folder)
        and f"{parts[depth]}.py" not in folders.names(folder)
    ):
        folder, depth = folder / parts[depth], depth + 1
    if depth < len(parts) and folders.has(folder / f"{parts[depth]}.py"):
        return folder / f"{parts[depth]}.py", ".".join(parts[: depth + 1])
    while depth > 1:
        if folders.has(folder / "__init__.py"):
            return folder / "__init__.py", ".".join(parts[:depth])
        folder, depth = folder.parent, depth - 1
    return None
