"""Where in the program a thread is: steps, regions and allowances, nested, each thread and task for itself.

While nobody watches, entering one costs a test of an empty tuple.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Generator
from contextvars import ContextVar
from types import TracebackType
from typing import Any, Protocol, TypeVar, cast

from dsv4prof.model.syncs import Direction
from dsv4prof.sync.runtime.watch.policy import Allowance, Level, Levels, levels

Function = TypeVar("Function", bound=Callable[..., Any])


class Scope:
    """One entry of a region, a step or an allowance. `unit` is what budgets of a watch count by: the innermost step,
    else the outermost region. Changed only by the thread or task that entered it.
    """

    __slots__ = (
        "allowance",
        "kind",
        "levels",
        "looked",
        "max_syncs",
        "name",
        "parent",
        "path",
        "step",
        "syncs",
        "unit",
        "used",
    )

    def __init__(
        self,
        name: str,
        parent: Scope | None,
        *,
        kind: str = "region",
        levels: Levels | None = None,
        allowance: Allowance | None = None,
        max_syncs: int | None = None,
        step: int | None = None,
        operators: bool = False,
    ) -> None:
        self.name, self.parent, self.kind = name, parent, kind
        self.levels, self.allowance, self.max_syncs = levels, allowance, max_syncs
        self.syncs = self.used = 0
        above, outer = "", None
        # Whether operators are looked at one by one, where that layer is on.
        self.looked: bool = operators
        self.step: int | None = step
        if parent is not None:
            above, outer = parent.path, parent.unit
            self.looked = operators or parent.looked
            if step is None:
                self.step = parent.step
        # A step is a number beside the region, not part of its name.
        self.path: str = above if kind != "region" else (f"{above}/{name}" if above else name)
        named = kind == "step" or (kind == "region" and outer is None)
        self.unit: Scope | None = self if named else outer

    def level_of(self, direction: Direction) -> Level | None:
        """What the innermost scope that cares says."""
        scope: Scope | None = self
        while scope is not None:
            level = scope.levels.of(direction) if scope.levels is not None else None
            if level is not None:
                return level
            scope = scope.parent
        return None

    def allowed(self, direction: Direction) -> str:
        """The reason of an allowance that still covers one more sync, which is used up with it; "" without one."""
        scope: Scope | None = self
        while scope is not None:
            given = scope.allowance
            if given is not None and given.covers(direction) and (given.times is None or scope.used < given.times):
                scope.used += 1
                return given.reason
            scope = scope.parent
        return ""

    def counted(self, times: int) -> None:
        """A sync that nobody allowed, in this scope and all around it."""
        scope: Scope | None = self
        while scope is not None:
            scope.syncs += times
            scope = scope.parent


class ScopeListener(Protocol):
    """Told of every scope while it watches, on the thread that enters and leaves."""

    def scope_entered(self, scope: Scope) -> object: ...
    def scope_left(self, scope: Scope, opened: object, error: BaseException | None) -> None: ...


_current: ContextVar[Scope | None] = ContextVar("dsv4prof_watch_scope", default=None)
_listeners: tuple[ScopeListener, ...] = ()
_steps = 0


def current() -> Scope | None:
    return _current.get()


def listen(listener: ScopeListener) -> None:
    global _listeners
    _listeners = (*_listeners, listener)


def unlisten(listener: ScopeListener) -> None:
    global _listeners
    _listeners = tuple(each for each in _listeners if each is not listener)


def watched() -> bool:
    """Whether anybody listens: what is entered otherwise is not even made."""
    return bool(_listeners)


_Entry = tuple[Scope, list[tuple[ScopeListener, object]]]


class Entering:
    """A context manager and decorator that enters a scope made by `make`, for whoever listens at that time."""

    def __init__(self, make: Callable[[Scope | None], Scope]) -> None:
        self._make = make
        self._entries: list[_Entry | None] = []

    def __enter__(self) -> Scope | None:
        if not _listeners:
            self._entries.append(None)
            return None
        scope = self._make(_current.get())
        _current.set(scope)
        self._entries.append((scope, [(each, each.scope_entered(scope)) for each in _listeners]))
        return scope

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        entry = self._entries.pop()
        if entry is None:
            return
        scope, opened = entry
        try:
            for listener, value in reversed(opened):
                listener.scope_left(scope, value, error)
        finally:
            # Not a token's reset: a generator that somebody else closes leaves in another context than it entered in.
            _current.set(scope.parent)
            if scope.unit is scope:
                # A circle would wait for the garbage collector, each step.
                scope.unit = None

    def __call__(self, function: Function) -> Function:
        make = self._make
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def awaited(*args: Any, **kwargs: Any) -> Any:
                with Entering(make):
                    return await function(*args, **kwargs)

            return cast(Function, awaited)
        if inspect.isgeneratorfunction(function):

            @functools.wraps(function)
            def generated(*args: Any, **kwargs: Any) -> Any:
                return (yield from _inside(make, function(*args, **kwargs)))

            return cast(Function, generated)

        @functools.wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            # While nobody watches, torch.compile sees the function alone; watched, a region is a break in its graph.
            if not _listeners:
                return function(*args, **kwargs)
            with Entering(make):
                return function(*args, **kwargs)

        return cast(Function, called)


def _inside(make: Callable[[Scope | None], Scope], body: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
    """A generator whose own code runs in a scope, and not what its caller does between two values."""
    resume: Callable[[], Any] = functools.partial(next, body)
    while True:
        with Entering(make):
            try:
                value = resume()
            except StopIteration as end:
                return end.value
        try:
            resume = functools.partial(body.send, (yield value))
        except GeneratorExit:
            body.close()
            raise
        except BaseException as error:  # noqa: BLE001  whatever is thrown in is the generator's to handle
            resume = functools.partial(body.throw, error)


def region(
    name: str,
    *,
    max_syncs: int | None = None,
    d2h: Level | None = None,
    h2d: Level | None = None,
    explicit: Level | None = None,
    alloc: Level | None = None,
    allowance: Allowance | None = None,
    operators: bool = True,
) -> Entering:
    """A named part of the program, as a context manager or decorator: syncs inside are listed under it.

    max_syncs: most waits of one entry. d2h, h2d, explicit, alloc: a level for that direction in here. allowance: waits
    of every entry that are intended. operators False: a part so large that the layer `dispatch`, which costs several
    times a small operator, is not to look at each.

    Raises UsageError for an unknown level; a broken budget is raised by the watch.
    """
    if max_syncs is d2h is h2d is explicit is alloc is allowance is None:
        return Entering(_plain(name, operators))
    given = levels(d2h=d2h, h2d=h2d, explicit=explicit, alloc=alloc)
    own = None if given.says_nothing else given
    return Entering(
        functools.partial(Scope, name, levels=own, max_syncs=max_syncs, allowance=allowance, operators=operators)
    )


@functools.lru_cache(maxsize=1024)
def _plain(name: str, operators: bool) -> Callable[[Scope | None], Scope]:
    """The same few names come in every step."""
    return functools.partial(Scope, name, operators=operators)


def allow_syncs(reason: str, *, times: int | None = 1, directions: tuple[Direction, ...] = ()) -> Entering:
    """Syncs in here are intended, for that reason: up to `times` calls of each entry, None for any number."""
    allowance = Allowance(reason=reason, times=times, directions=directions)
    return Entering(lambda parent: Scope("", parent, kind="allowance", allowance=allowance))


def step(index: int | None = None, *, kind: str = "step", max_syncs: int | None = None) -> Entering:
    """One step of the program: what budgets count by and warm-up is counted in. `index` None counts by itself."""

    def make(parent: Scope | None) -> Scope:
        global _steps
        number = _steps if index is None else index
        _steps = number + 1
        return Scope(kind, parent, kind="step", step=number, max_syncs=max_syncs)

    return Entering(make)
