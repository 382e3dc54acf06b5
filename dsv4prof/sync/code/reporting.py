"""Runs the functions of one module and turns what the runs met into findings."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from dsv4prof.sync import catalogue
from dsv4prof.sync.code.callers import Callers
from dsv4prof.sync.code.facts import Function, Module
from dsv4prof.sync.code.found import Found, Problem
from dsv4prof.sync.code.interpreter import engine
from dsv4prof.sync.code.interpreter.run import Run, Site
from dsv4prof.sync.code.options import AuditOptions
from dsv4prof.sync.code.proof import proven
from dsv4prof.sync.code.values import CERTAIN, LEVELS, POSSIBLE, TENSOR, UNKNOWN, Value
from dsv4prof.sync.code.world import LEVELS as DEPTH
from dsv4prof.sync.code.world import World

# The newest torch that the catalogue was checked against.
NEWEST = "2.13"
# What an error of ours in one function must not do is end the audit.
_FAILURES = (RecursionError, LookupError, ValueError, TypeError, AttributeError, AssertionError)


class Reporter:
    """Runs functions for what they do; knows their callers and the hot paths."""

    def __init__(self, world: World, options: AuditOptions) -> None:
        self.world = world
        self.callers = Callers(world)
        self.torch = version(options.torch_version or NEWEST)
        self._lines = options.lines

    def module(self, module: Module) -> tuple[list[Found], list[Problem]]:
        """The findings of one module, in no order."""
        found: list[Found] = []
        problems: list[Problem] = []
        if self.world.project.names[module.name].module.path != module.path:
            # x.py beside x/__init__.py: nobody can import it.
            return found, problems
        runs: list[tuple[str, int, Callable[[], tuple[Site, ...]]]] = [
            (function.qualname, function.line, partial(self._function, module, function))
            for function in module.functions
            if function.waits
            and self._is_wanted(module, function)
            and not self.world.is_kernel(module, function.decorators)
        ]
        if module.body_tensors:
            runs.append(("the module's body", 1, partial(self._body, module)))
        for name, line, run in runs:
            try:
                sites = run()
            except _FAILURES as error:
                text = f"{name} could not be interpreted: {type(error).__name__}"
                problems.append(Problem(module.path, text, line))
                continue
            found.extend(made for made in (_finding(module, site, self.torch) for site in sites) if made is not None)
        return found, problems

    def _is_wanted(self, module: Module, function: Function) -> bool:
        ranges = self._lines.get(module.path)
        if ranges is None:
            return True
        begin = function.line - len(function.decorators)
        return any(first <= function.end_line and last >= begin for first, last in ranges)

    def _body(self, module: Module) -> tuple[Site, ...]:
        run = Run(self.world, module, "", "", DEPTH, report=True)
        engine.body(run, self.world.sources.body(module))
        return tuple((run.sites or {}).values())

    def _function(self, module: Module, function: Function) -> tuple[Site, ...]:
        """One run, and where a verdict hangs on a parameter or is a guess by name a second one that knows more."""
        ref = self.world.project.ref(module, function)
        sites = self.world.result(ref, DEPTH + 1).sites
        hanging = frozenset().union(*(site.effect.params for site in sites if site.effect.level < CERTAIN))
        open_ = self._open(ref, function)
        told = self.callers.facts(ref, hanging, DEPTH + 1)
        if open_ - hanging:
            more = self.callers.facts(ref, open_ - hanging, DEPTH + 1, cheaply=True)
            told |= {name: value for name, value in more.items() if value.may_be_on_device}
        guesses = self._guesses(ref)
        guessed = bool(guesses) or any(site.effect.level == POSSIBLE for site in sites)
        node = self.world.sources.function(module, function) if guessed else None
        shown = proven(node) if node is not None else frozenset()
        if not any(site.effect.level == POSSIBLE for site in sites):
            shown &= guesses
        return self._again(ref, told, shown) if told or shown else sites

    def _guesses(self, ref: str) -> frozenset[str]:
        """Parameters that are tensors by nothing but their names."""
        function = self.world.project.function(ref)
        assert function is not None
        values = self.world.parameters(ref, function)
        return frozenset(n for n, value in values.items() if value.kinds & TENSOR and value.strength == POSSIBLE)

    def _open(self, ref: str, function: Function) -> frozenset[str]:
        """Parameters of which not even their kind is known."""
        values = self.world.parameters(ref, function)
        return frozenset(p.name for p in function.parameters if not p.kind and values[p.name].kinds == UNKNOWN)

    def _again(self, ref: str, told: dict[str, Value], shown: frozenset[str]) -> tuple[Site, ...]:
        run = self.world.start(ref, DEPTH, report=True)
        run.proven = shown
        self.world.carry_out(run, ref, told)
        return tuple((run.sites or {}).values())


def version(text: str) -> tuple[int, int]:
    """Major and minor of `2.11.0+cu130`."""
    parts = text.split(".")
    return int(parts[0]), int("".join(c for c in (parts[1] if len(parts) > 1 else "0") if c.isdigit()) or 0)


def _finding(module: Module, site: Site, torch: tuple[int, int]) -> Found | None:
    form = catalogue.form(site.effect.form)
    if (form.since and torch < version(form.since)) or (form.until and torch > version(form.until)):
        return None
    line, column, end_line, end_column = site.span
    return Found(
        path=module.path,
        line=line,
        end_line=end_line,
        column=column,
        end_column=end_column,
        statement_line=site.statement[0],
        statement_end=site.statement[1],
        code=form.code,
        form=form.id,
        level=LEVELS[site.effect.level],
        function=site.function,
        text=site.text(),
        reason=site.effect.reason,
        why=site.effect.why,
        times=site.effect.times,
        conditional=site.conditional,
        loop=site.loop,
        cold=site.cold,
        facts=site.effect.facts,
    )
