"""The files round a change: who calls what was touched, and what those files import, read when somebody asks for it."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import PurePosixPath

from dsv4prof.sync.code.changes.tree import Function, Tree

# What `staging` looks for has one of these in its name.
_STAGES = re.compile(
    rb"pin_memory|\bpin\(|non_blocking|copy_\(|\bstream\(|Stream\(|wait_stream|record_stream|data_ptr|[mM]emcpy|wait_event"
)
_DEFINED = re.compile(rb"\bdef\s+(\w+)")

# A name that more files call is too common to say who calls this function.
_MOST_FILES = 20


class Project:
    """`trees` are the files that changed, by path; `read` gives any other one below the root, or None; `paths` all that
    are there. `unseen` says which functions have callers that were not looked at, since there are too many.
    """

    def __init__(
        self,
        trees: Mapping[str, Tree],
        read: Callable[[str], bytes | None],
        paths: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        self._trees = dict(trees)
        self._read = read
        self._paths = paths
        self.unseen: set[str] = set()
        self._imported: dict[str, list[str]] = {}
        self._defined: dict[str, frozenset[str]] = {}
        self._known: list[str] | None = None
        self._contents: dict[str, bytes | None] = {}

    def tree(self, path: str) -> Tree:
        """The file, without any function where it is not there."""
        if path not in self._trees:
            self._trees[path] = Tree(path, self._content(path))
        return self._trees[path]

    def callers(self, function: Function) -> list[Function]:
        """Functions of any file that call one of this name."""
        found = self.tree(function.path).callers(function)
        call = f"{function.short}(".encode()
        files = [path for path in self._everything() if path != function.path and self._calls(path, call)]
        if len(files) > _MOST_FILES:
            self.unseen.add(function.name)
            return found
        return [*found, *(item for path in files for item in self.tree(path).callers(function))]

    def _everything(self) -> list[str]:
        if self._known is None:
            self._known = sorted({*self._paths(), *self._trees})
        return self._known

    def _calls(self, path: str, call: bytes) -> bool:
        """A cheap look at the bytes: most files name no function of a change."""
        content = self._content(path) or b""
        return content.count(call) > content.count(b"def " + call)

    def called_by(self, function: Function) -> list[Function]:
        """Functions whose name it calls: of its own file, and of the files of this project that its file imports."""
        here = self.tree(function.path)
        near = [path for path in self.imported(here) if not self._names(path).isdisjoint(function.calls)]
        return [*here.called_by(function), *(item for path in near for item in self.tree(path).called_by(function))]

    def imported(self, tree: Tree) -> list[str]:
        """The files that its imports name, wherever they stand; those without a word of staging are not parsed."""
        if tree.path not in self._imported:
            named: dict[str, None] = {}
            for names in _imports(tree):
                path = next((path for path in names if self._is_there(path)), tree.path)
                if path != tree.path and self._may_stage(path):
                    named[path] = None
            self._imported[tree.path] = list(named)
        return self._imported[tree.path]

    def _names(self, path: str) -> frozenset[str]:
        """What the file defines, without parsing it."""
        if path not in self._defined:
            found = _DEFINED.findall(self._content(path) or b"")
            self._defined[path] = frozenset(name.decode("utf-8", "replace") for name in found)
        return self._defined[path]

    def _is_there(self, path: str) -> bool:
        return path in self._trees or self._content(path) is not None

    def _may_stage(self, path: str) -> bool:
        return path in self._trees or _STAGES.search(self._content(path) or b"") is not None

    def _content(self, path: str) -> bytes | None:
        if path not in self._contents:
            self._contents[path] = self._read(path)
        return self._contents[path]


def _imports(tree: Tree) -> Iterator[list[str]]:
    """For each import the paths at which its file may lie, the likeliest first."""
    if tree.module is None:
        return
    folder = PurePosixPath(tree.path).parent.parts
    for node in ast.walk(tree.module):
        if isinstance(node, ast.Import):
            yield from (_places(folder, alias.name.split(".")) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            named = node.module.split(".") if node.module else []
            for parts in (named, *([*named, alias.name] for alias in node.names)):
                if node.level:
                    up = folder[: len(folder) - node.level + 1]
                    yield _files([*up, *parts]) if node.level <= len(folder) + 1 else []
                else:
                    yield _places(folder, parts)


def _places(folder: tuple[str, ...], parts: list[str]) -> list[str]:
    """An absolute name may start at the root, at a folder above the importing file, or above the root itself."""
    above = [[*folder[:depth], *parts] for depth in range(len(folder) + 1)]
    below = [parts[cut:] for cut in range(1, min(len(parts), 4))]
    return [path for names in (*above, *below) for path in _files(names)]


def _files(names: list[str]) -> list[str]:
    return [f"{'/'.join(names)}.py", f"{'/'.join(names)}/__init__.py"] if names else []
