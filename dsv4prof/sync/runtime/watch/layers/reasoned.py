"""From an operator call to observations, by the table of reasons that all detectors share."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from dsv4prof.model.syncs import Kind, Layer, Observation
from dsv4prof.sync.runtime.calls import OpCall, Reason
from dsv4prof.sync.runtime.watch import stacks
from dsv4prof.sync.runtime.watch.expressions import expression_at


def reasons_of(call: OpCall) -> tuple[Reason, ...]:
    """Why the call waits; nothing is read from the device to answer."""
    from dsv4prof.sync.runtime.reasons import reasons_of as ask

    return ask(call)


def observed(
    layer: Layer,
    call: OpCall,
    *,
    only: Iterable[Kind] | None = None,
    by_line: bool = False,
    stream: Callable[[], int] | None = None,
) -> list[Observation]:
    """An observation for each reason; none for a call that does not wait. `by_line`: under the form that the author of
    the line would recognise, such as a slice bound where dispatch shows a scalar read. `stream` is asked only then.
    """
    wanted = None if only is None else frozenset(only)
    found = [reason for reason in reasons_of(call) if wanted is None or reason.kind in wanted]
    if not found:
        return []
    if by_line:
        found = _as_written(found)
    shapes = shapes_of(call)
    thread = threading.get_ident()
    on = call.stream if stream is None else stream()
    return [
        Observation(
            layer=layer,
            kind=reason.kind,
            direction=reason.direction,
            op=call.name,
            reason=reason.text,
            form=reason.form,
            code=reason.code,
            times=reason.times,
            shapes=shapes,
            stream=on,
            thread=thread,
        )
        for reason in found
    ]


def _as_written(reasons: list[Reason]) -> list[Reason]:
    from dsv4prof.sync.runtime.reasons import refined

    place = stacks.here()
    found = expression_at(place.code, place.instruction) if place.code is not None else None
    if found is None or not found.name:
        return reasons
    return [refined(reason, found.name, device_index=not found.sliced) for reason in reasons]


def shapes_of(call: OpCall) -> tuple[tuple[int, ...], ...]:
    """Of the tensors given, also within lists."""
    return tuple(tuple(map(int, each.shape)) for each in tensors_of((*call.args, *call.kwargs.values())))


def tensors_of(values: Iterable[Any]) -> Sequence[Any]:
    found: list[Any] = []
    for value in values:
        if isinstance(value, list | tuple):
            found += tensors_of(value)
        elif hasattr(value, "untyped_storage") and hasattr(value, "shape"):
            found.append(value)
    return found
