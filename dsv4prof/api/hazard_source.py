"""What the source says round a sync: the finding of its line, and the staging, raw copies and streams near it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import msgspec

from dsv4prof.sync.runtime.hazards.replay import Place

_MOST = 12


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


def source_notes(place: Place, ran: str | None) -> SourceNotes:
    """Of the file `ran` that the run was in, or else of one below the working directory; never fails for want of it."""
    path = Path(ran) if ran is not None and Path(ran).is_file() else _file(place.file)
    if path is None:
        return SourceNotes(lines=[f"{place.file} was not found here, so only the run speaks"])
    found = _findings(path, place)
    near = _near(path, place)
    lines = [f"{each['code']} {each['text']}: {each['reason']}" for each in found]
    fixes = sorted({each["fix"] for each in found if each["fix"]})
    lines += [f"its rule suggests: {fix}" for fix in fixes]
    if not near:
        lines.append("its source shows no staging, raw copy or other stream within three callers and two calls of it")
    return SourceNotes(lines=lines, near=near, facts={"found": found, "near": msgspec.to_builtins(near)})


def _file(name: str) -> Path | None:
    given = Path(name)
    if given.is_file():
        return given.resolve()
    wanted = given.parts
    found = []
    for folder, folders, files in os.walk("."):
        folders[:] = [
            each for each in folders if not each.startswith(".") and each not in ("node_modules", "__pycache__")
        ]
        if wanted[-1] in files and Path(folder, wanted[-1]).parts[-len(wanted) :] == wanted:
            found.append(Path(folder, wanted[-1]).resolve())
    return found[0] if len(found) == 1 else None


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
        return first <= place.line <= last
    return function == place.function or function.endswith(f".{place.function}")


def _near(path: Path, place: Place) -> list[Near]:
    """In the function, its callers and what they call, within the folder of the file."""
    from dsv4prof.sync.code.changes.project import Project
    from dsv4prof.sync.code.changes.staging import staging_around

    root = _project_root(path)
    name = path.relative_to(root).as_posix()
    paths = [each.relative_to(root).as_posix() for each in root.rglob("*.py")]

    def read(wanted: str) -> bytes | None:
        try:
            return (root / wanted).read_bytes()
        except OSError:
            return None

    project = Project({}, read, lambda: paths)
    tree = project.tree(name)
    function = tree.around(place.line) if place.line is not None else _named(tree.functions, place.function or "")
    if function is None:
        return []
    staging, _ = staging_around(project, tree, function)
    base = os.path.relpath(root)
    return [Near(os.path.normpath(f"{base}/{each.path}"), each.line, each.function, each.what) for each in staging][
        :_MOST
    ]


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
