"""The audit of a folder of source: facts of every file, then every function that may handle tensors, then hot paths."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from msgspec.structs import replace

from dsv4prof.errors import InputError
from dsv4prof.sync.code import cache, files, parse, work
from dsv4prof.sync.code.annotations import Annotations
from dsv4prof.sync.code.facts import Module
from dsv4prof.sync.code.found import Audit, Found, HotFunction, Problem
from dsv4prof.sync.code.hot import HotPaths, without_a_function
from dsv4prof.sync.code.options import AuditOptions
from dsv4prof.sync.code.project import Project
from dsv4prof.sync.code.semantics import Conventions
from dsv4prof.sync.code.values import LEVELS, POSSIBLE

_DEFAULT = AuditOptions()


def audit(root: Path, options: AuditOptions = _DEFAULT) -> Audit:
    """Everything that was found below `root`, the same for any number of processes and any state of the cache.

    Raises InputError when there is no such file or folder. Files that cannot be read become problems.
    """
    with parse.quiet_gc():
        session = _Session(root, options)
        made = session.audit(options)
        session.store()
        return made


def versions(root: Path, now: AuditOptions, before: AuditOptions) -> tuple[Audit, Audit]:
    """The audits of a project as it is and as it was, where most files are the same: read once, hot paths walked once.

    Without `paths` neither reports on anything. What has gone since has no hot path. Raises as `audit`.
    """
    with parse.quiet_gc():
        session = _Session(root, now)
        made = session.audit(now, everything=False), session.audit(before, everything=False)
        session.store()
        return made


class _Session:
    """What several audits of one root share."""

    def __init__(self, root: Path, options: AuditOptions) -> None:
        if not root.exists():
            raise InputError(f"{root} does not exist", hint="name a folder or a file of Python source")
        self._root = root
        self._shelf = cache.Shelf(root, options)
        self._paths = files.discover(root, options)
        self._hot: HotPaths | None = None

    def audit(self, options: AuditOptions, *, everything: bool = True) -> Audit:
        paths = files.overlaid(self._paths, options)
        chosen = files.wanted(paths, self._root, options) if options.paths or everything else []
        self._shelf.look(paths, options)
        results = self._shelf.results(_asked(options))
        left = [path for path in chosen if path not in results]
        remembered = partial(self._shelf.outside, options=options)
        modules, fresh = work.interpret(self._root, options, paths, self._shelf.known, left, remembered)
        self._add_ways(options, modules, fresh)
        results |= fresh
        if not options.sources:
            self._shelf.keep(modules, results if not options.lines else None)
        made = replace(_joined(self._root, chosen, modules, results), notes=_unknown(options, modules))
        return replace(made, hot=self._hot_functions(options, modules, made.paths)) if options.list_hot else made

    def store(self) -> None:
        self._shelf.store()

    def _add_ways(
        self, options: AuditOptions, modules: dict[str, Module], fresh: dict[str, tuple[list[Found], list[Problem]]]
    ) -> None:
        """Fills `hot` of what was found."""
        if not any(found for found, _ in fresh.values()):
            return
        hot = self._ways(options, modules)
        for path, (found, problems) in fresh.items():
            fresh[path] = [_placed(one, modules[path], hot) for one in found], problems

    def _ways(self, options: AuditOptions, modules: dict[str, Module]) -> HotPaths:
        if self._hot is None:
            project = Project(self._root, modules.values())
            annotations = Annotations(project, Conventions(mirrors=options.mirrors))
            self._hot = HotPaths(project, annotations, options)
        return self._hot

    def _hot_functions(self, options: AuditOptions, modules: dict[str, Module], paths: list[str]) -> list[HotFunction]:
        hot = self._ways(options, modules)
        return [
            HotFunction(path, function.qualname, function.line, function.end_line)
            for path in paths
            for function in modules[path].functions
            if hot.way(modules[path], function.qualname)
        ]


def _unknown(options: AuditOptions, modules: dict[str, Module]) -> list[str]:
    """A pattern with a slip of the pen would change nothing, and nobody would know."""
    said = []
    for flag, globs in (("--hot", options.hot), ("--cold", options.cold)):
        for glob in without_a_function(globs, modules.values()) if globs else ():
            form = "" if ":" in glob else ": the form is module:function, as globs"
            said.append(f"{flag} {glob} matches no function{form}")
    return said


def _joined(
    root: Path, chosen: list[str], modules: dict[str, Module], results: dict[str, tuple[list[Found], list[Problem]]]
) -> Audit:
    found: list[Found] = []
    problems: list[Problem] = []
    for path in chosen:
        module = modules[path]
        if module.problem:
            problems.append(Problem(path, module.problem, module.problem_line))
        more, bad = results.get(path, ([], []))
        found.extend(more)
        problems.extend(bad)
    read = [path for path in chosen if not modules[path].problem]
    return Audit(
        root=str(root),
        files=len(read),
        lines=sum(modules[path].lines for path in chosen),
        functions=sum(len(modules[path].functions) for path in chosen),
        found=sorted(found, key=_order),
        problems=sorted(problems, key=lambda problem: (problem.path, problem.line, problem.message)),
        paths=read,
    )


def _placed(one: Found, module: Module, hot: HotPaths) -> Found:
    """With its way; a stall of the allocator is nothing to report where things are allocated."""
    way = () if one.cold else hot.way(module, one.function)
    stalls = one.code == "DSV111" and not way and hot.cold(module, one.function)
    return replace(one, hot=way, level=LEVELS[POSSIBLE] if stalls else one.level)


def _asked(options: AuditOptions) -> bytes:
    """What of the options decides findings, beside which files are asked for."""
    return repr((options.mirrors, options.hot, options.cold, options.torch_version)).encode()


def _order(found: Found) -> tuple[str, int, int, int, str]:
    return found.path, found.line, found.column, found.end_line, found.form
