"""What somebody means who names a place: the file that the run knew, the whole statement of a line, the function that
a line begins; and what to say where the run or the file has no such place.

Reads the source that is here now, and says nothing of it where it is not.
"""

from __future__ import annotations

import ast
import difflib
import os
from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path, PurePath

import msgspec

from dsv4prof.sync.runtime.hazards.events import HostWaits
from dsv4prof.sync.runtime.hazards.log import Log
from dsv4prof.sync.runtime.hazards.replay import Place

_MOST_FOLDERS = 2_000
NOT_SOURCE = frozenset({"node_modules", "__pycache__", "site-packages", "venv"})
_NAMED = 4
_Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


class Located(msgspec.Struct, frozen=True, kw_only=True):
    """`place` as it is to be judged, the file at `path` (None where it is not here), and remarks about both."""

    place: Place
    path: Path | None
    notes: list[str] = []


def located(place: Place, log: Log) -> Located:
    """The place in the words of a run. Never fails for want of the file."""
    known = sorted({frame.file for stack in log.sites for frame in stack if place.names(frame.file)})
    here = [each for each in map(Path, known) if each.is_file()]
    notes = []
    if len(known) > 1:
        names = ", ".join(_short(file) for file in known[:_NAMED])
        notes.append(f"{len(known)} files of the run have this name, and all are judged: {names}")
    path = here[0] if here else _below_here(place.file)
    if path is None:
        return Located(
            place=place, path=None, notes=[*notes, f"{place.file} was not found here, so only the run speaks"]
        )
    if len(known) > 1:
        return Located(place=place, path=path, notes=notes)
    place, about = _in_source(place, path)
    return Located(place=place, path=path, notes=notes + about)


def waits_in_file(log: Log, place: Place, *, most: int = 4) -> list[str]:
    """Where else in the file the host waited: the innermost lines of it, the most frequent first."""
    times: Counter[tuple[int, str]] = Counter()
    for event in log.events:
        if isinstance(event, HostWaits):
            frame = next((frame for frame in log.sites[event.site] if place.names(frame.file)), None)
            if frame is not None:
                times[frame.line, frame.function] += 1
    return [f"line {line} ({function}), {count:,} x" for (line, function), count in times.most_common(most)]


def _in_source(place: Place, path: Path) -> tuple[Place, list[str]]:
    text, tree = _parsed(path)
    if tree is None:
        return place, []
    if place.line is None:
        return place, _about_function(place, tree, path)
    lines = text.count("\n") + (not text.endswith("\n"))
    if place.line > lines:
        return place, [f"{path.name} has {lines:,} lines"]
    if place.span is not None:
        return place, []
    begun = _begun_at(tree, place.line)
    if begun is not None:
        whole = msgspec.structs.replace(place, line=None, function=begun)
        return whole, [f"line {place.line} begins {begun}, so all of it is judged"]
    span = _statement_at(tree, place.line)
    return (place if span is None else msgspec.structs.replace(place, span=span)), []


def _about_function(place: Place, tree: ast.Module, path: Path) -> list[str]:
    names = [name for name, _ in _definitions(tree)]
    if any(place.is_in(name) for name in names):
        return []
    last = (place.function or "").rpartition(".")[2]
    close = difflib.get_close_matches(last, sorted({name.rpartition(".")[2] for name in names}), n=1)
    return [f"{path.name} has no function {place.function}" + (f"; it has {close[0]}" if close else "")]


@lru_cache(maxsize=8)
def _parsed(path: Path) -> tuple[str, ast.Module | None]:
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
        return text, ast.parse(text)
    except (OSError, SyntaxError, ValueError):
        return "", None


def _definitions(tree: ast.AST, outer: str = "") -> Iterator[tuple[str, _Definition]]:
    for node in ast.iter_child_nodes(tree):
        name = outer
        if isinstance(node, _Definition):
            name = f"{outer}.{node.name}" if outer else node.name
            yield name, node
        yield from _definitions(node, name)


def _begun_at(tree: ast.Module, line: int) -> str | None:
    """The function or class whose decorators, name or parameters stand on the line."""
    return next((name for name, node in _definitions(tree) if _first(node) <= line < _body(node)), None)


def _statement_at(tree: ast.Module, line: int) -> tuple[int, int] | None:
    """First and last line of the innermost statement; of one with a body only what stands before that."""
    spans = [
        (_first(node), _body(node) - 1)
        for node in ast.walk(tree)
        if isinstance(node, ast.stmt) and not isinstance(node, _Definition)
    ]
    around = [span for span in spans if span[0] <= line <= span[1]]
    return min(around, key=lambda span: span[1] - span[0], default=None)


def _first(node: ast.stmt) -> int:
    return min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))])


def _body(node: ast.stmt) -> int:
    """The first line after what belongs to the statement itself."""
    body = getattr(node, "body", None)
    end = (node.end_lineno or node.lineno) + 1
    if isinstance(node, ast.Match):
        return node.cases[0].pattern.lineno
    return max(_first(body[0]), node.lineno + 1) if isinstance(body, list) and body else end


def _below_here(name: str) -> Path | None:
    """One file of this name below the working directory, where few folders are to be looked through."""
    given = Path(name)
    if given.is_file():
        return given.resolve()
    wanted = PurePath(name).parts
    found = []
    for count, (folder, folders, files) in enumerate(os.walk(".")):
        if count >= _MOST_FOLDERS:
            return None
        folders[:] = [each for each in folders if not each.startswith(".") and each not in NOT_SOURCE]
        if wanted[-1] in files and Path(folder, wanted[-1]).parts[-len(wanted) :] == wanted:
            found.append(Path(folder, wanted[-1]).resolve())
    return found[0] if len(found) == 1 else None


def _short(file: str) -> str:
    return "/".join(PurePath(file).parts[-3:])
