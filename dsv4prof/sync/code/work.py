"""The two costly steps, reading and interpreting, in this process or in two: the results are the same.

Each process reads a half of the files and keeps their syntax; then facts are exchanged, and each interprets its half.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path

import msgspec

from dsv4prof.sync.code import files, gather, outside, parse
from dsv4prof.sync.code.facts import Module, module_name
from dsv4prof.sync.code.found import Found, Problem
from dsv4prof.sync.code.options import AuditOptions
from dsv4prof.sync.code.project import Project
from dsv4prof.sync.code.reporting import Reporter
from dsv4prof.sync.code.semantics import Conventions
from dsv4prof.sync.code.sources import Sources
from dsv4prof.sync.code.words import MODALITIES
from dsv4prof.sync.code.world import World

Results = dict[str, tuple[list[Found], list[Problem]]]

# Starting a process and telling it the facts takes longer than auditing so many files.
_WORTH_A_PROCESS = 150
_MODULES = msgspec.msgpack.Decoder(dict[str, Module])
_RESULTS = msgspec.msgpack.Decoder(Results)


def interpret(
    root: Path,
    options: AuditOptions,
    paths: list[str],
    known: dict[str, Module],
    wanted: list[str],
    remembered: Callable[[str], Module | None] = lambda path: None,
) -> tuple[dict[str, Module], Results]:
    """Facts of all `paths` (those in `known` are taken from there) and what was found in the `wanted` ones.

    `remembered` gives the facts of a file outside the root, where they are still true.
    """
    unknown = [path for path in paths if path not in known]
    busy = max(len(unknown), len(wanted))
    jobs = options.jobs or min(2, os.cpu_count() or 1)
    if jobs > 1 and busy >= _WORTH_A_PROCESS and "fork" in multiprocessing.get_all_start_methods():
        return _in_two(root, options, unknown, known, wanted, remembered)
    part = Part(root, options)
    modules = {path: known[path] for path in paths if path in known} | part.read(unknown)
    modules |= part.context(modules, remembered) if wanted else {}
    return modules, part.interpret(modules, wanted) if wanted else {}


class Part:
    """The work of one process."""

    def __init__(self, root: Path, options: AuditOptions, share: int = 1) -> None:
        self.root = root
        self.options = options
        self.sources = Sources(root, options, share)
        base = (root if root.is_dir() else root.parent).resolve()
        self.above = tuple(part for part in base.parts if part.isidentifier())

    def read(self, paths: list[str]) -> dict[str, Module]:
        """Facts by path; the syntax is kept as far as there is room."""
        return {path: self._facts(path) for path in paths}

    def context(self, modules: dict[str, Module], remembered: Callable[[str], Module | None]) -> dict[str, Module]:
        """Facts of modules outside the root that are imported."""

        def read(path: str, name: str) -> Module:
            return remembered(path) or self._facts(path, name)

        return outside.context(self.root, modules.values(), read, outside.Folders())

    def interpret(self, modules: dict[str, Module], wanted: list[str]) -> Results:
        """What was found, by path."""
        declared = sorted(
            {name for module in modules.values() for name in module.mirrors if name.startswith(MODALITIES)}
        )
        conventions = Conventions(mirrors=(*self.options.mirrors, *declared))
        reporter = Reporter(World(Project(self.root, modules.values()), self.sources, conventions), self.options)
        results = {path: reporter.module(modules[path]) for path in wanted}
        # World and reporter know each other; without its syntax what is left for the collector is small.
        self.sources.drop()
        return results

    def _facts(self, path: str, name: str | None = None) -> Module:
        named = name
        name = module_name(path) if name is None else name
        try:
            data = files.read(self.root, path, self.options)
        except OSError as error:
            return Module(path=path, name=name, problem=f"cannot be read: {error.strerror or error}")
        read = parse.parse(path, data)
        if isinstance(read, Problem):
            return Module(path=path, name=name, problem=read.message, problem_line=read.line)
        tree, text = read
        try:
            module = gather.gather(path, tree, text, named, self.above)
        except RecursionError:
            return Module(path=path, name=name, problem="nested too deeply to be read")
        self.sources.keep(module, tree, text)
        return module


def _in_two(
    root: Path,
    options: AuditOptions,
    unknown: list[str],
    known: dict[str, Module],
    wanted: list[str],
    remembered: Callable[[str], Module | None],
) -> tuple[dict[str, Module], Results]:
    mine, theirs = _halves(root, unknown)
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe()
    child = context.Process(target=_child, args=(there, root, options, theirs), daemon=True)
    child.start()
    there.close()
    part = Part(root, options, 2)
    modules = dict(known) | part.read(mine)
    my_wanted, their_wanted = _split(wanted, mine, theirs)
    try:
        modules |= _MODULES.decode(here.recv_bytes())
        modules |= part.context(modules, remembered)
        here.send_bytes(msgspec.msgpack.encode((modules, their_wanted)))
        results = part.interpret(modules, my_wanted)
        results |= _RESULTS.decode(here.recv_bytes())
    except (EOFError, BrokenPipeError, ConnectionResetError):
        # The other process died (memory, a signal): do its half as well.
        modules |= part.read([path for path in theirs if path not in modules])
        results = part.interpret(modules, wanted)
    finally:
        here.close()
        child.join(timeout=10)
        if child.is_alive():
            child.terminate()
    return modules, results


def _child(pipe: Connection, root: Path, options: AuditOptions, paths: list[str]) -> None:
    part = Part(root, options, 2)
    pipe.send_bytes(msgspec.msgpack.encode(part.read(paths)))
    modules, wanted = msgspec.msgpack.decode(pipe.recv_bytes(), type=tuple[dict[str, Module], list[str]])
    pipe.send_bytes(msgspec.msgpack.encode(part.interpret(modules, wanted)))
    pipe.close()
    # Nothing is left to do: taking a large heap apart piece by piece takes seconds.
    os._exit(0)


def _halves(root: Path, paths: list[str]) -> tuple[list[str], list[str]]:
    """Two runs of neighbours, about equal in bytes: files of one folder ask for each other."""
    sizes = [_size(root, path) for path in paths]
    half, seen = sum(sizes) / 2, 0
    for place, size in enumerate(sizes):
        seen += size
        if seen >= half:
            return paths[: place + 1], paths[place + 1 :]
    return paths, []


def _split(wanted: list[str], mine: list[str], theirs: list[str]) -> tuple[list[str], list[str]]:
    """Who has read a file interprets it; of files that nobody read each takes a half."""
    own, others = set(mine), set(theirs)
    free = [path for path in wanted if path not in own and path not in others]
    middle = len(free) // 2
    return (
        [path for path in wanted if path in own] + free[:middle],
        [path for path in wanted if path in others] + free[middle:],
    )


def _size(root: Path, path: str) -> int:
    try:
        return (root / path).stat().st_size
    except OSError:
        return 0
