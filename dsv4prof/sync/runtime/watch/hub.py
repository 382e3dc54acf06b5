"""Between the layers, which are one for the process because what they hook is, and the watches, which may be many.

A layer is on from the first watch that wants it to the last. Every observation becomes part of a call, and every
watch hears of the call at once, when it may still refuse it, and again when nothing more will be said of it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any, Protocol

from dsv4prof.errors import Dsv4profError
from dsv4prof.model.syncs import Kind, Layer, Observation
from dsv4prof.sync.runtime.watch import scopes, stacks
from dsv4prof.sync.runtime.watch.merging import WAITED_NS, Call, ThreadCalls, expects
from dsv4prof.sync.runtime.watch.scopes import Scope
from dsv4prof.sync.runtime.watch.stacks import Place

# These have not let the call begin when they speak, so a refusal prevents it.
_BEFORE: tuple[Layer, ...] = ("explicit", "copies", "dispatch", "shadow")
# Nobody speaks of a call after these have.
_LAST: tuple[Layer, ...] = ("shadow", "warn")


class Watcher(Protocol):
    """Somebody who is told of calls."""

    def call_grew(self, call: Call, times: int, *, before: bool) -> None:
        """`times` more waits; with `before` an exception raised here prevents the call."""

    def call_settled(self, call: Call, missing: tuple[Layer, ...]) -> None: ...
    def scope_begun(self, scope: Scope) -> None: ...
    def unit_ended(self, scope: Scope) -> None: ...
    def scope_ended(self, scope: Scope) -> None: ...


class Hooked(Protocol):
    """A layer: it hooks into the process and speaks to a hub."""

    @property
    def name(self) -> Layer: ...
    def start(self) -> None:
        """Raises Dsv4profError where it cannot work here; nothing is hooked then."""

    def stop(self) -> None: ...
    def rearm(self) -> None:
        """Undo what the program may have changed."""


class Hub:
    """See above. `note`, `begin` and `end` are for layers, on the thread that makes the call."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._threads: dict[int, ThreadCalls] = {}
        self._lent: list[tuple[Place, Scope | None, ThreadCalls]] = []
        self._watchers: tuple[Watcher, ...] = ()
        self._layers: dict[Layer, tuple[Hooked, int]] = {}
        self._into: list[Any] = []
        self._unsettled = False

    @property
    def layers(self) -> tuple[Layer, ...]:
        return tuple(self._layers)

    def layer(self, name: Layer) -> Any:
        """The layer of a name that is on. Raises KeyError."""
        return self._layers[name][0]

    def join(self, watcher: Watcher, layers: Sequence[Hooked]) -> None:
        """Begin to tell a watcher, with these layers on. Raises what a layer raises; none of them is on then."""
        self.settle_all()
        with self._lock, ExitStack() as undo:
            for layer in layers:
                self._switch_on(layer)
                undo.callback(self._switch_off, layer.name)
            if not self._watchers:
                scopes.listen(self)
            self._watchers = (*self._watchers, watcher)
            undo.pop_all()

    def leave(self, watcher: Watcher, layers: Sequence[Layer]) -> None:
        """The watcher hears what is left, and no more."""
        self.settle_all()
        with self._lock, ExitStack() as everything:
            self._watchers = tuple(each for each in self._watchers if each is not watcher)
            if not self._watchers:
                scopes.unlisten(self)
            for name in layers:
                everything.callback(self._switch_off, name)

    def _switch_on(self, layer: Hooked) -> None:
        known, users = self._layers.get(layer.name, (layer, 0))
        if not users:
            layer.start()
        self._layers[layer.name] = (known, users + 1)
        self._into = self._entered_by_regions()

    def _switch_off(self, name: Layer) -> None:
        layer, users = self._layers[name]
        if users > 1:
            self._layers[name] = (layer, users - 1)
            return
        del self._layers[name]
        self._into = self._entered_by_regions()
        layer.stop()

    def _entered_by_regions(self) -> list[Any]:
        found = (getattr(layer, "region", None) for layer, _ in self._layers.values())
        return [into for into in found if into is not None]

    # What layers say

    def note(self, observation: Observation, place: Place | None = None) -> Call:
        """A layer saw something. May raise SyncDisallowedError where the layer comes before the wait."""
        where, scope, mine = self._whose(stacks.here() if place is None else place)
        call = mine.find(observation, where)
        new = call is None
        if call is None:
            self._settle(mine.settled(where))
            call = Call(where, scope)
            mine.begin(call)
            self._unsettled = True
        grown = call.add(observation)
        try:
            if grown or new:
                for watcher in self._watchers:
                    watcher.call_grew(call, grown, before=observation.layer in _BEFORE)
        finally:
            if observation.layer in _LAST and mine.finish(call, observation.layer):
                self._settle([call])
        return call

    def begin(self, observations: Sequence[Observation]) -> Call:
        """A layer is about to make a call that waits; everything until `end` is about it."""
        place = stacks.here()
        call = self.note(observations[0], place)
        for more in observations[1:]:
            self.note(more, place)
        self._whose(place)[2].bracket(call)
        call.began_ns = time.monotonic_ns()
        return call

    def end(self, call: Call) -> None:
        span_ns = time.monotonic_ns() - call.began_ns
        for mine in list(self._threads.values()):
            if mine.unbracket(call, span_ns):
                break
        first = call.first
        if first.kind is Kind.SUSPECT and first.direction == "alloc" and span_ns >= WAITED_NS:
            grown = call.waited()
            for watcher in self._watchers:
                watcher.call_grew(call, grown, before=False)

    def lend(self) -> None:
        """Until `take_back`, what threads without any Python do, autograd's, they do for this line of this thread."""
        self._lent.append((stacks.here(), scopes.current(), self._mine()))

    def take_back(self) -> None:
        self._lent.pop()

    def _whose(self, place: Place) -> tuple[Place, Scope | None, ThreadCalls]:
        """The place, the scope and the calls that something seen at `place` belongs to."""
        if place.code is None and not place.frames and self._lent:
            return self._lent[-1]
        return place, scopes.current(), self._mine()

    def _mine(self) -> ThreadCalls:
        # By its number, not a thread-local: a thread of C++ has a new one of those at every callback.
        number = threading.get_ident()
        mine = self._threads.get(number)
        return mine if mine is not None else self._threads.setdefault(number, ThreadCalls())

    def settle_all(self) -> None:
        """Nothing more will be said of any call so far."""
        for each in list(self._threads.values()):
            self._settle(each.drain())

    def _settle_mine(self) -> None:
        """This thread goes on to something else. Most of the time there is nothing."""
        if not self._unsettled:
            return
        mine = self._threads.get(threading.get_ident())
        if mine is not None and mine.pending:
            self._settle(mine.drain())
        # Should another thread begin a call just now, it is settled a little later.
        self._unsettled = any(each.pending for each in list(self._threads.values()))

    def _settle(self, calls: Sequence[Call]) -> None:
        for call in calls:
            missing = tuple([name for name in self._layers if name not in call.counts and expects(call, name)])
            for watcher in self._watchers:
                watcher.call_settled(call, missing)

    # What scopes say

    def scope_entered(self, scope: Scope) -> object:
        if scope.kind == "allowance":
            return None
        self._settle_mine()
        for watcher in self._watchers:
            watcher.scope_begun(scope)
        if scope.unit is scope:
            # Once a step is often enough for what costs a microsecond.
            for layer, _ in list(self._layers.values()):
                layer.rearm()
        if not self._into:
            return None
        opened = ExitStack()
        for into in self._into:
            opened.enter_context(into(scope))
        return opened

    def scope_left(self, scope: Scope, opened: object, error: BaseException | None) -> None:
        if scope.kind == "allowance":
            return
        if isinstance(opened, ExitStack):
            opened.close()
        self._settle_mine()
        for watcher in self._watchers:
            watcher.scope_ended(scope)
            if scope.unit is scope:
                watcher.unit_ended(scope)


_HUB = Hub()


def the_hub() -> Hub:
    """The one of this process."""
    return _HUB


class LayerMissingError(Dsv4profError):
    """A layer cannot work here; the message says why."""
