"""One function being interpreted: where it stands, what it found, what it gives back."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from dsv4prof.sync import catalogue
from dsv4prof.sync.code.effects import Args, Effect
from dsv4prof.sync.code.facts import Module
from dsv4prof.sync.code.interpreter.environments import COLD, HOST_ONLY, Environment, settle
from dsv4prof.sync.code.values import CERTAIN, LIKELY, Value, Why, join

if TYPE_CHECKING:
    from dsv4prof.sync.code.interpreter.nested import Closure
    from dsv4prof.sync.code.world import World

_TEXT = 200
# The name under which `stores` keeps what was put into the container that an attribute holds.
ELEMENTS = "[]"


class Site:
    """One place in the source where one form happens, as it is met along the paths."""

    __slots__ = ("cold", "conditional", "effect", "function", "loop", "node", "span", "statement", "times")

    def __init__(self, run: Run, node: ast.AST, effect: Effect, conditional: bool, cold: bool) -> None:
        self.node = node
        self.span = span_of(run.anchor or node)
        self.effect = effect
        self.statement = run.statement
        self.function = run.function
        self.conditional = conditional
        self.cold = cold
        self.loop = run.loops
        self.times = effect.times

    def text(self) -> str:
        """The expression on one line."""
        text = " ".join(ast.unparse(self.node).split())
        return text if len(text) <= _TEXT else text[: _TEXT - 3] + "..."


class Run:
    """The state of one interpretation. `sites` is None when only the value that comes back is asked for.

    `level` is how many definitions away the run may still look; `owner` is the reference of the method's class.
    """

    def __init__(self, world: World, module: Module, function: str, owner: str, level: int, *, report: bool) -> None:
        self.world = world
        self.module = module
        self.function = function
        self.owner = owner
        self.level = level
        self.sites: dict[tuple[int, int, int, int, str], Site] | None = {} if report else None
        self.returned: list[Value] = []
        self.stores: dict[str, Value] = {}
        self.closures: dict[str, Closure] = {}
        self.partials: dict[str, tuple[Value, Args]] = {}
        self.calls: dict[str, list[Args]] = {}
        self.loops = 0
        self.conditions = 0
        self.statement = (0, 0)
        self.anchor: ast.AST | None = None
        self.receiver = ""
        self.globals: dict[str, Value] = {}
        self.exits: list[list[Environment]] = []
        self.heads: set[str] = set()
        self.tests = False
        self.minted: set[str] = set()
        self.epoch = 0
        self.reads = False
        # A copy without a wait was started; it was on another stream; how many contexts of a stream are open.
        self.pending = False
        self.aside = False
        self.streams = 0
        self.unused: ast.AST | None = None
        self.proven: frozenset[str] = frozenset()

    def emit(self, node: ast.AST, effects: Iterable[Effect], env: Environment) -> None:
        """Notes effects at `node`, unless only a host runs this."""
        if self.sites is None:
            return
        host = env.get(HOST_ONLY)
        if host is True:
            return
        for effect in effects:
            if host is not None and effect.level < CERTAIN:
                continue
            key = (*span_of(self.anchor or node), effect.form)
            known = self.sites.get(key)
            conditional = self.conditions > 0 or effect.mixed
            if known is None:
                self.sites[key] = Site(self, node, self.stamped_effect(effect, node), conditional, COLD in env)
            else:
                known.cold = known.cold and COLD in env
                known.conditional = known.conditional and conditional
                if effect.level > known.effect.level:
                    known.effect = self.stamped_effect(effect, node)
        if self.pending and (self.streams or not self.aside) and any(map(_waits, effects)):
            # Whoever waits for the stream has waited for the copies that it was given before.
            settle(env)

    def stamped_effect(self, effect: Effect, node: ast.AST) -> Effect:
        """The effect with the place of its inference."""
        why = effect.why
        if why is None or why.line:
            return effect
        return replace(effect, why=self.stamp(why, node))

    def stamp(self, why: Why, node: ast.AST) -> Why:
        """The step with the line where it was taken."""
        before = why.before
        if before is not None and not before.line:
            before = self.stamp(before, node)
        return Why(why.text, (self.anchor or node).lineno, self.module.path, before)  # type: ignore[attr-defined]

    def stamped(self, value: Value, node: ast.AST) -> Value:
        """The value with the place of its last inference."""
        why = value.why
        if why is None or why.line:
            return value
        return replace(value, why=self.stamp(why, node))

    def store(self, name: str, value: Value) -> None:
        """`self.name = value` on some path."""
        held = self.stores.get(name)
        self.stores[name] = value if held is None else join(held, value)


def _waits(effect: Effect) -> bool:
    if effect.level < LIKELY:
        return False
    form = catalogue.form(effect.form)
    return form.syncs and form.code.startswith("DSV1")


def span_of(node: ast.AST) -> tuple[int, int, int, int]:
    """Line, column, end line, end column; of a compound statement its header."""
    end_line, end_column = node.end_lineno, node.end_col_offset  # type: ignore[attr-defined]
    if node.__class__ in _HEADERS:
        end_line, end_column = header_end(node), 0  # type: ignore[arg-type]
    return node.lineno, node.col_offset, end_line, end_column  # type: ignore[attr-defined]


def header_end(node: ast.stmt) -> int:
    """The last line of a compound statement before its body; of any other statement its last line."""
    last = _HEADERS.get(node.__class__)
    return (node if last is None else last(node)).end_lineno or node.lineno


def _with_header(node: ast.AST) -> ast.AST:
    item = node.items[-1]  # type: ignore[attr-defined]
    return item.optional_vars or item.context_expr


def _first_line(node: ast.AST) -> ast.AST:
    return ast.Pass(end_lineno=node.lineno)  # type: ignore[attr-defined]


_HEADERS: dict[type, Callable[[Any], Any]] = {
    ast.If: attrgetter("test"),
    ast.While: attrgetter("test"),
    ast.For: attrgetter("iter"),
    ast.AsyncFor: attrgetter("iter"),
    ast.With: _with_header,
    ast.AsyncWith: _with_header,
    ast.Match: attrgetter("subject"),
    ast.Try: _first_line,
    ast.FunctionDef: _first_line,
    ast.AsyncFunctionDef: _first_line,
    ast.ClassDef: _first_line,
}
