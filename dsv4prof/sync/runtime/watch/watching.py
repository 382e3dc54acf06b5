"""`SyncWatch`: which calls of a block make the host wait for the device, where, and whether that is within bounds."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, TypeVar, cast

from dsv4prof.errors import LifetimeError
from dsv4prof.model.finding import Finding
from dsv4prof.model.syncs import Layer, SyncEvent
from dsv4prof.sync.runtime.watch.choice import Choice, choose, hooked
from dsv4prof.sync.runtime.watch.hub import Hub, the_hub
from dsv4prof.sync.runtime.watch.merging import Call
from dsv4prof.sync.runtime.watch.policy import Allowance, Level, Levels, SyncDisallowedError, levels
from dsv4prof.sync.runtime.watch.scopes import Scope
from dsv4prof.sync.runtime.watch.tally import Tally

Function = TypeVar("Function", bound=Callable[..., Any])
Settled = Callable[[Call, "tuple[Layer, ...]"], None]


class SyncWatch:
    """Lists every host sync of a block, as a context manager or a decorator.

    gpu: True watches the device, False runs the block on shadow tensors that say `cuda` and compute on the CPU; None
    takes the device where there is one. vendor: what shadows pretend, `cuda` or `hip`. layers: the layers to switch on,
    None those that cost next to nothing (`warn`, `explicit`, `copies`; without a GPU `shadow`). `gpu_trace` cannot be
    switched off again, so it needs `own_process=True`. `dispatch` looks at operators in regions alone.
    d2h, h2d, explicit, alloc: `allow` (not counted), `log`, or `disallow`: a SyncDisallowedError at the call where the
    layer comes before the wait, and in any case at the end of the block. max_syncs: most waits of a step, where steps
    are announced (`dsv4prof.step`), else of an outermost region, else of the block. warmup: so many first steps count
    for nothing. allow: intended waits by region, by path or last name. hazards: also look for what syncs protect.
    strict False only records: nothing is raised. keep: most events kept in full; counts go on.

    Raises UsageError for options that make no sense, Dsv4profError where a layer cannot work here, and at the end of
    the block SyncDisallowedError for what broke a level or a budget, unless the block raised something else.
    """

    def __init__(
        self,
        *,
        gpu: bool | None = None,
        vendor: Literal["cuda", "hip"] = "cuda",
        layers: Sequence[Layer] | None = None,
        own_process: bool = False,
        d2h: Level = "log",
        h2d: Level = "log",
        explicit: Level = "log",
        alloc: Level = "log",
        max_syncs: int | None = None,
        warmup: int = 0,
        allow: Mapping[str, Allowance] | None = None,
        hazards: bool = False,
        strict: bool = True,
        keep: int = 10_000,
        on_call: Settled | None = None,
    ) -> None:
        self._choice = Choice(
            gpu=gpu,
            vendor=vendor,
            layers=None if layers is None else tuple(layers),
            own_process=own_process,
            hazards=hazards,
        )
        self._levels = levels(d2h=d2h, h2d=h2d, explicit=explicit, alloc=alloc)
        self._max_syncs, self._warmup, self._strict, self._keep = max_syncs, warmup, strict, keep
        self._allow = dict(allow or {})
        self._on_call = on_call
        self._hub: Hub = the_hub()
        self._layers: tuple[Layer, ...] = ()
        self._state: Literal["new", "watching", "done"] = "new"
        self._lock = threading.Lock()
        self._tally = Tally(max_syncs=max_syncs, warmup=warmup, levels=self._levels, allow=self._allow)
        self._calls: list[tuple[Call, tuple[Layer, ...]]] = []
        self._left_out = 0
        self._hazards: Any = None

    # The block

    def __enter__(self) -> SyncWatch:
        if self._state != "new":
            raise LifetimeError(f"this watch is {self._state}; make a new one for each block")
        chosen, hazards = choose(self._choice), None
        if self._choice.hazards:
            from dsv4prof.sync.runtime.watch.hazard_seam import hazard_watch

            hazards = hazard_watch(gpu="shadow" not in chosen)
        made = hooked(chosen, self._hub, self._choice, hazards=hazards)
        if hazards is not None:
            hazards.start()
        try:
            self._hub.join(self, made)
        except BaseException:
            if hazards is not None:
                hazards.stop()
            raise
        self._layers, self._hazards, self._state = chosen, hazards, "watching"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._state = "done"
        try:
            self._hub.leave(self, self._layers)
        finally:
            if self._hazards is not None:
                self._hazards.stop()
        problem = self.problem()
        if problem is None or not self._strict or isinstance(error, SyncDisallowedError):
            return
        if error is None:
            raise problem
        if hasattr(error, "add_note"):
            error.add_note(f"dsv4prof: {problem.message}")

    def __call__(self, function: Function) -> Function:
        """Each call of the function is a block of its own, with these options; of a coroutine or generator until it
        has ended, with what else runs meanwhile.
        """
        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def awaited(*args: Any, **kwargs: Any) -> Any:
                with self.again():
                    return await function(*args, **kwargs)

            return cast(Function, awaited)
        if inspect.isgeneratorfunction(function):

            @functools.wraps(function)
            def generated(*args: Any, **kwargs: Any) -> Any:
                with self.again():
                    return (yield from function(*args, **kwargs))

            return cast(Function, generated)

        @functools.wraps(function)
        def watched(*args: Any, **kwargs: Any) -> Any:
            with self.again():
                return function(*args, **kwargs)

        return cast(Function, watched)

    def again(self) -> SyncWatch:
        """A new watch with the same options."""
        return SyncWatch(
            **{name: getattr(self._choice, name) for name in Choice.__struct_fields__},
            **{name: self._levels.of(name) or "log" for name in Levels.__struct_fields__},  # type: ignore[arg-type]
            max_syncs=self._max_syncs,
            warmup=self._warmup,
            allow=self._allow,
            strict=self._strict,
            keep=self._keep,
            on_call=self._on_call,
        )

    # What was seen

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The layers that this watch switched on."""
        return self._layers

    @property
    def events(self) -> list[SyncEvent]:
        """What was seen, as it was settled: warm-up and allowed calls are among them. At most `keep`."""
        if self._state == "watching":
            self._hub.settle_all()
        with self._lock:
            return [call.event(missing) for call, missing in self._calls]

    @property
    def left_out(self) -> int:
        """Calls beyond `keep`: counted, and not among `events`."""
        return self._left_out

    @property
    def syncs(self) -> int:
        """How often the host waited, without warm-up, allowed waits and directions at level `allow`."""
        return self._tally.syncs

    @property
    def tally(self) -> Tally:
        """Counts by step and region, and what broke a bound."""
        return self._tally

    @property
    def hazards(self) -> list[Finding]:
        """What `hazards=True` found; [] without it."""
        found: list[Finding] = list(self._hazards.findings()) if self._hazards is not None else []
        return found

    def __repr__(self) -> str:
        layers = ", ".join(self._layers) or "no layer yet"
        return f"<SyncWatch {self._state}: {self.syncs:,} syncs, {layers}>"

    def problem(self) -> SyncDisallowedError | None:
        """What broke a level or a budget so far, as one error; None when all is within bounds."""
        self._tally.finish(whole=self._state == "done")
        said = self._tally.violations
        if not said:
            return None
        first, more = said[0], len(said) - 1
        rest = f" (and {more:,} more of the kind)" if more else ""
        return SyncDisallowedError(first.message + rest, event=first.event, hint=first.hint)

    # What the hub tells

    def call_grew(self, call: Call, times: int, *, before: bool) -> None:
        violation = self._tally.grew(call, times)
        if violation is not None and before and self._strict:
            raise SyncDisallowedError(violation.message, event=violation.event, hint=violation.hint)

    def call_settled(self, call: Call, missing: tuple[Layer, ...]) -> None:
        with self._lock:
            if len(self._calls) < self._keep:
                self._calls.append((call, missing))
            else:
                self._left_out += 1
        if self._on_call is not None:
            self._on_call(call, missing)

    def scope_begun(self, scope: Scope) -> None:
        if self._hazards is not None:
            self._hazards.enter(step=scope.step, region=scope.path)

    def unit_ended(self, scope: Scope) -> None:
        self._tally.unit_ended(scope)

    def scope_ended(self, scope: Scope) -> None:
        self._tally.scope_ended(scope)
        if self._hazards is not None:
            around = scope.parent
            self._hazards.enter(
                step=around.step if around is not None else None, region=around.path if around is not None else ""
            )
