"""A profiler that outlives its release crashes later, elsewhere: say who still holds it, by name.

objgraph follows Python's own back references. It cannot see a frozen heap (`gc.freeze`), so that is thawed for the
search and frozen again, and it cannot see the locals of running frames, which are searched here.
"""

from __future__ import annotations

import gc
import itertools
import sys
import time
from collections.abc import Sequence
from types import FrameType, ModuleType
from typing import Any

from dsv4prof.recorder.backends import Remains

_MAX_DEPTH = 12
# Each link scans the whole heap; a server of millions of objects must not stand still for a name.
_PATIENCE_S = 5.0
# A program that has imported anything freezes far more than this; the interpreter itself far less.
_INTERPRETERS_OWN = 2_000


class _SearchTookTooLongError(Exception):
    """Leaves objgraph's search, which knows no limit of time."""


def frozen_by_the_program() -> int:
    """Objects in a heap that the program froze; 0 otherwise. Python 3.12 freezes some hundred of its own at start."""
    count = gc.get_freeze_count()
    return count if count > _INTERPRETERS_OWN else 0


def find_holders(remains: Sequence[Remains]) -> tuple[list[str], str | None]:
    """One sentence a holder of everything in `remains` that is alive, and a note on how the search was made."""
    frozen = frozen_by_the_program()
    if frozen:
        gc.unfreeze()
    try:
        holders = [f"{item.label}: {holder}" for item in remains for holder in _holders_of(item)]
    finally:
        if frozen:
            gc.freeze()
    note = f"the heap was frozen ({frozen} objects): thawed for the search and frozen again" if frozen else None
    return list(dict.fromkeys(holders)), note


def _holders_of(item: Remains) -> list[str]:
    target = item.ref()
    if target is None:
        return []
    own = sys._getframe()
    found = _frames_holding(target)
    chain = _module_chain(target)
    if chain:
        found.append(chain)
    return found or [_direct_referrers(target, own)]


def _frames_holding(target: object) -> list[str]:
    found = []
    for top in sys._current_frames().values():
        frame: FrameType | None = top
        while frame is not None:
            if frame.f_code.co_filename != __file__:
                found += [
                    f"local variable {name!r} of {_where(frame)}"
                    for name, value in list(frame.f_locals.items())
                    if value is target
                ]
            frame = frame.f_back
    return found


def _module_chain(target: object) -> str | None:
    """The way from a module to the target; None when there is none, the search takes too long, or objgraph is
    absent.
    """
    try:
        import objgraph
    except ImportError:
        return None
    deadline = time.monotonic() + _PATIENCE_S

    def is_module(candidate: object) -> bool:
        if time.monotonic() > deadline:
            raise _SearchTookTooLongError
        return bool(objgraph.is_proper_module(candidate))

    try:
        chain = objgraph.find_backref_chain(target, is_module, max_depth=_MAX_DEPTH)
    except _SearchTookTooLongError:
        return None
    return " -> ".join(_links(chain)) if len(chain) > 1 else None


def _links(chain: Sequence[object]) -> list[str]:
    """A step each, with the key or attribute under which the next one is found."""
    links = []
    for holder, held in itertools.pairwise(chain):
        name = _key_of(holder, held)
        links.append(f"{_kind(holder)}{name}")
    return [*links, _kind(chain[-1])]


def _key_of(holder: object, held: object) -> str:
    if isinstance(holder, dict):
        return next((f"[{key!r}]" for key, value in holder.items() if value is held), "")
    if isinstance(holder, (list, tuple)):
        return next((f"[{index}]" for index, value in enumerate(holder) if value is held), "")
    attributes = getattr(holder, "__dict__", None)
    if isinstance(attributes, dict) and attributes is not held:
        return next((f".{key}" for key, value in attributes.items() if value is held), "")
    return ""


def _kind(value: object) -> str:
    if isinstance(value, ModuleType):
        return f"module {value.__name__}"
    if isinstance(value, FrameType):
        return f"frame of {_where(value)}"
    name = getattr(value, "__qualname__", None)
    kind = type(value).__name__
    return f"{kind} {name}" if isinstance(name, str) else kind


def _direct_referrers(target: object, own: FrameType) -> str:
    referrers: list[Any] = [holder for holder in gc.get_referrers(target) if holder is not own]
    if not referrers:
        return "a holder that Python's collector cannot see (C++ code, or a running frame of another interpreter)"
    return ", ".join(f"{_kind(holder)}{_key_of(holder, target)}" for holder in referrers[:5])


def _where(frame: FrameType) -> str:
    code = frame.f_code
    return f"{code.co_name} ({code.co_filename}:{frame.f_lineno})"
