"""In a process of a watched command: wait until the program imports torch, then watch until it ends.

Nothing is imported that the program does not import itself, torch least of all.
"""

from __future__ import annotations

import atexit
import functools
import os
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

from dsv4prof.errors import Dsv4profError
from dsv4prof.sync.runtime.watch import orders as given
from dsv4prof.sync.runtime.watch import ran_log
from dsv4prof.sync.runtime.watch.orders import Orders
from dsv4prof.sync.runtime.watch.scopes import region

_RANKS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")


def prepare(path: str) -> None:
    """Arrange for everything; called before the program's first line."""
    orders = given.read(Path(path))
    after: dict[str, list[Callable[[ModuleType], None]]] = {}
    # Torch comes first: a region may be a function of it.
    after["torch"] = [lambda _: arm(orders)]
    for name in orders.regions:
        module, _, function = name.partition(":")
        after.setdefault(module, []).append(functools.partial(_as_region, function=function, name=name))
    _waiting.append(AfterImport(after))
    sys.meta_path.insert(0, _waiting[0])


class AfterImport(MetaPathFinder):
    """Does something with a module right after it was imported, once."""

    def __init__(self, after: dict[str, list[Callable[[ModuleType], None]]]) -> None:
        self._after = after

    def unmet(self, regions: Sequence[str]) -> list[str]:
        """What to say of regions whose module was never imported."""
        return [
            f"--region {name}: {name.partition(':')[0]} was not imported (a script itself is no module)"
            for name in regions
            if name.partition(":")[0] in self._after
        ]

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        actions = self._after.pop(name, None)
        if actions is None:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            spec = find(name, path, target) if find is not None and finder is not self else None
            if spec is not None:
                break
        else:
            self._after[name] = actions
            return None
        if spec.loader is not None:
            spec.loader = _Following(spec.loader, actions)
        return spec


class _Following:
    """A module's loader, followed by actions; the module itself sees its own loader."""

    def __init__(self, loader: Any, actions: list[Callable[[ModuleType], None]]) -> None:
        self._loader, self._actions = loader, actions

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        made: ModuleType | None = self._loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        for action in self._actions:
            action(module)


def _as_region(module: ModuleType, *, function: str, name: str) -> None:
    """Make a function of a module, or of a class in it, a region of its own name."""
    owner: Any = module
    *outer, last = function.split(".")
    try:
        for part in outer:
            owner = getattr(owner, part)
        raw = vars(owner)[last]
    except (AttributeError, KeyError):
        _note(f"--region {name}: {module.__name__} has no {function}")
        return
    entered = region(function)
    if isinstance(raw, staticmethod | classmethod):
        setattr(owner, last, type(raw)(entered(raw.__func__)))
    else:
        setattr(owner, last, entered(raw))


_notes: list[str] = []
_waiting: list[AfterImport] = []


def _note(text: str) -> None:
    _notes.append(text)


def arm(orders: Orders) -> None:
    """Watch this process to its end. What cannot be watched is written down for the parent."""
    from dsv4prof.sync.runtime.watch.policy import disallowing
    from dsv4prof.sync.runtime.watch.watching import SyncWatch
    from dsv4prof.sync.runtime.watch.writing import LogWriter

    levels = disallowing(orders.disallow)
    log: LogWriter | None = None
    watch = SyncWatch(
        gpu=orders.gpu,
        vendor=orders.vendor,
        layers=orders.layers,
        own_process=True,
        d2h=levels.d2h or "log",
        h2d=levels.h2d or "log",
        explicit=levels.explicit or "log",
        alloc=levels.alloc or "log",
        max_syncs=orders.max_syncs,
        warmup=orders.warmup,
        hazards=orders.hazards,
        strict=False,
        keep=0,
        on_call=lambda call, missing: log.settled(call, missing) if log is not None else None,
    )
    try:
        watch.__enter__()
    except Dsv4profError as error:
        hint = f" ({error.hint})" if error.hint else ""
        _problem(orders, f"pid {os.getpid()} is not watched: {error.message}{hint}")
        return
    log = LogWriter(Path(orders.folder), _head(orders, watch.layers))
    log.follow(watch.tally)
    follower = _follow(orders, log)
    atexit.register(_finish, orders, watch, log, follower)
    if orders.fault_watch:
        _keep_launches(orders, shadows="shadow" in watch.layers)


def _keep_launches(orders: Orders, *, shadows: bool) -> None:
    """Keep a fault record of this process; it is closed before the rest, as it was opened last. Shadows have no device
    that could be asked how far it has come.
    """
    from dsv4prof.sync.runtime.faultwatch.watch import FaultWatch

    ranks = [os.environ[name] for name in _RANKS if os.environ.get(name, "").isdecimal()]
    name = f"rank{ranks[0]}" if ranks else f"pid{os.getpid()}"
    facts = {"argv": list(sys.orig_argv), "shadows": shadows, **({} if ranks else {"rank": None})}
    device: Literal["current"] | None = None if shadows else "current"
    rank = int(ranks[0]) if ranks else 0
    faults = FaultWatch(Path(orders.folder), rank=rank, name=name, device=device, facts=facts)
    try:
        faults.__enter__()
    except Dsv4profError as error:
        _problem(orders, f"pid {os.getpid()} keeps no fault record: {error.message}")
        return

    def close() -> None:
        # What ended the program, where that was an exception that nobody caught.
        error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
        faults.__exit__(type(error) if error is not None else None, error, None)

    atexit.register(close)


def _finish(orders: Orders, watch: Any, log: Any, follower: Any) -> None:
    if follower is not None:
        follower.stop()
        for function in follower.lines():
            log.function(*function)
    watch.__exit__(None, None, None)
    for finding in watch.hazards:
        log.finding(finding)
    for text in [*_notes, *(text for waiting in _waiting for text in waiting.unmet(orders.regions))]:
        log.note(text)
    log.finish()


def _follow(orders: Orders, log: Any) -> Any:
    if not orders.entered:
        return None
    from dsv4prof.sync.runtime.watch.entered import Follower

    follower = Follower(orders.entered, log.function)
    follower.start()
    return follower


def _head(orders: Orders, layers: Sequence[Any]) -> ran_log.Head:
    import torch

    gpu = "shadow" not in layers
    ranks = [os.environ[name] for name in _RANKS if os.environ.get(name, "").isdecimal()]
    return ran_log.Head(
        pid=os.getpid(),
        argv=sys.orig_argv,
        rank=int(ranks[0]) if ranks else None,
        torch=str(torch.__version__),
        gpu=gpu,
        vendor="hip" if gpu and torch.version.hip else orders.vendor,
        layers=list(layers),
    )


def _problem(orders: Orders, text: str) -> None:
    with (Path(orders.folder) / ran_log.PROBLEMS).open("a", encoding="utf-8") as file:
        file.write(text + "\n")
