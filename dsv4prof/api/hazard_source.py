"""What the source says round a sync: the finding of its line, and the staging, raw copies and streams near it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from dsv4prof.sync.runtime.hazards.locating import NOT_SOURCE, Located
from dsv4prof.sync.runtime.hazards.replay import Place

_MOST, _MOST_SOURCES = 12, 2_000


class Near(msgspec.Struct, frozen=True):
    """A line that a sync can have protected."""

    path: str
    line: int
    function: str
    what: str


class SourceNotes(msgspec.Struct, frozen=True, kw_only=True):
    """`lines` are sentences, `facts` what machines ask for. Empty where the file is not here."""

    lines: list[str] = []
    near: list[Near] = []
    facts: dict[str, Any] = {}


def source_notes(spot: Located) -> SourceNotes:
    """Of the file at the spot; never fails for want of it."""
    place, path = spot.place, spot.path
    if path is None:
        return SourceNotes()
    found = _findings(path, place)
    near = _near(path, place)
    lines = [f"{each['code']} {each['text']}: {each['reason']}" for each in found]
    fixes = sorted({each["fix"] for each in found if each["fix"]})
    lines += [f"its rule suggests: {fix}" for fix in fixes]
    if near == []:
        lines.append("its source shows no staging, raw copy or other stream within three callers and two calls of it")
    return SourceNotes(lines=lines, near=near or [], facts={"found": found, "near": msgspec.to_builtins(near or [])})


def _findings(path: Path, place: Place) -> list[dict[str, Any]]:
    from dsv4prof import rules
    from dsv4prof.sync.code.audit import audit
    from dsv4prof.sync.code.options import AuditOptions

    made = audit(path, AuditOptions(cache_dir=None))
    return [
        {
            "code": each.code,
            "line": each.line,
            "function": each.function,
            "text": each.text,
            "reason": each.reason,
            "fix": rules.get(each.code).fix,
        }
        for each in made.found
        if _fits(place, each.statement_line, each.statement_end, each.function)
    ]


def _fits(place: Place, first: int, last: int, function: str) -> bool:
    if place.line is not None:
        begin, end = place.span or (place.line, place.line)
        return first <= end and begin <= last
    return place.is_in(function)


def _near(path: Path, place: Place) -> list[Near] | None:
    """In the function, its callers and what they call, within the folder of the file; None where there is none."""
    from dsv4prof.sync.code.changes.project import Project
    from dsv4prof.sync.code.changes.staging import staging_around

    root = _project_root(path)
    name = path.relative_to(root).as_posix()
    paths = [each.relative_to(root).as_posix() for each in _sources(root)]

    def read(wanted: str) -> bytes | None:
        try:
            return (root / wanted).read_bytes()
        except OSError:
            return None

    project = Project({}, read, lambda: paths)
    tree = project.tree(name)
    function = tree.around(place.line) if place.line is not None else _named(tree.functions, place.function or "")
    if function is None:
        return None
    staging, _ = staging_around(project, tree, function)
    base = os.path.relpath(root)
    return [Near(os.path.normpath(f"{base}/{each.path}"), each.line, each.function, each.what) for each in staging][
        :_MOST
    ]


def _sources(root: Path) -> list[Path]:
    """The Python files of a project, of a limited number: beside a script may lie anything."""
    found: list[Path] = []
    for folder, folders, files in os.walk(root):
        folders[:] = sorted(each for each in folders if not each.startswith(".") and each not in NOT_SOURCE)
        found += [Path(folder, each) for each in sorted(files) if each.endswith(".py")]
        if len(found) > _MOST_SOURCES:
            break
    return found[:_MOST_SOURCES]


def _project_root(path: Path) -> Path:
    """The outermost folder of the package that the file belongs to."""
    folder = path.parent
    while (folder.parent / "__init__.py").is_file():
        folder = folder.parent
    return folder


def _named(functions: Any, name: str) -> Any:
    for key, function in functions.items():
        if key == name or key.endswith(f".{name}"):
            return function
    return None
