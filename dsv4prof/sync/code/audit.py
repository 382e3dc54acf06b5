"""The audit of a folder of source: facts of every file, then every function that may handle tensors, then hot paths."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from dsv4prof.errors import InputError
from dsv4prof.sync.code import cache, files, parse, work
from dsv4prof.sync.code.annotations import Annotations
from dsv4prof.sync.code.facts import Module
from dsv4prof.sync.code.found import Audit, Found, Problem
from dsv4prof.sync.code.hot import HotPaths
from dsv4prof.sync.code.options import AuditOptions
from dsv4prof.sync.code.project import Project
from dsv4prof.sync.code.semantics import Conventions
from dsv4prof.sync.code.values import LEVELS, POSSIBLE

_DEFAULT = AuditOptions()


def audit(root: Path, options: AuditOptions = _DEFAULT) -> Audit:
    """Everything that was found below `root`, the same for any number of processes and any state of the cache.

    Raises InputError when there is no such file or folder. Files that cannot be read become problems.
    """
    if not root.exists():
        raise InputError(f"{root} does not exist.", hint="Name a folder or a file of Python source.")
    with parse.quiet_gc():
        return _audit(root, options)


def _audit(root: Path, options: AuditOptions) -> Audit:
    paths = files.discover(root, options)
    chosen = files.wanted(paths, root, options)
    stored, place = _stored(root, options)
    keys = _keys(root, paths, options) if place is not None else {}
    known = {path: held[1] for path, held in stored.modules.items() if path in keys and held[0] == keys[path]}
    state = cache.digest(*(part for path in sorted(keys) for part in (path.encode(), keys[path])), _asked(options))
    results = dict(stored.results) if place is not None and stored.state == state else {}
    modules, fresh = work.interpret(root, options, paths, known, [path for path in chosen if path not in results])
    if fresh:
        _add_ways(root, options, modules, fresh)
    results.update(fresh)
    if place is not None and (fresh or len(known) < len(keys)):
        held = {path: (keys[path], modules[path]) for path in keys if path in modules}
        cache.store(place, cache.Pack(held, state, results))
    return _joined(root, chosen, modules, results)


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
    return Audit(
        root=str(root),
        files=len(chosen),
        lines=sum(modules[path].lines for path in chosen),
        functions=sum(len(modules[path].functions) for path in chosen),
        found=sorted(found, key=_order),
        problems=sorted(problems, key=lambda problem: (problem.path, problem.line, problem.message)),
        paths=chosen,
    )


def _add_ways(
    root: Path,
    options: AuditOptions,
    modules: dict[str, Module],
    fresh: dict[str, tuple[list[Found], list[Problem]]],
) -> None:
    """Fills `hot` of what was found."""
    if not any(found for found, _ in fresh.values()):
        return
    project = Project(root, modules.values())
    hot = HotPaths(project, Annotations(project, Conventions(mirrors=options.mirrors)), options)
    for path, (found, problems) in fresh.items():
        fresh[path] = [_placed(one, modules[path], hot) for one in found], problems


def _placed(one: Found, module: Module, hot: HotPaths) -> Found:
    """With its way; a stall of the allocator is nothing to report where things are allocated."""
    way = hot.way(module, one.function)
    stalls = one.code == "DSV111" and not way and hot.cold(module, one.function)
    return replace(one, hot=way, level=LEVELS[POSSIBLE] if stalls else one.level)


def _stored(root: Path, options: AuditOptions) -> tuple[cache.Pack, Path | None]:
    if options.cache_dir is None:
        return cache.Pack(), None
    place = cache.location(options.cache_dir, root)
    return cache.load(place), place


def _keys(root: Path, paths: list[str], options: AuditOptions) -> dict[str, bytes]:
    """The digest of every file that can be read."""
    keys: dict[str, bytes] = {}
    for path in paths:
        try:
            keys[path] = cache.digest(files.read(root, path, options))
        except OSError:
            continue
    return keys


def _asked(options: AuditOptions) -> bytes:
    """What of the options decides findings, beside which files are asked for."""
    return repr((options.mirrors, options.hot, options.cold, options.torch_version)).encode()


def _order(found: Found) -> tuple[str, int, int, int, str]:
    return found.path, found.line, found.column, found.end_line, found.form
