"""A reason out of the catalogue: its code and direction come from the form, so that no layer writes them again."""

from __future__ import annotations

from dsv4prof.model.syncs import Direction, Kind
from dsv4prof.sync import catalogue
from dsv4prof.sync.runtime.calls import Reason

_DIRECTIONS: dict[str, Direction] = {"d2h": "d2h", "h2d": "h2d", "wait": "explicit", "alloc": "alloc", "none": "d2h"}


def named(form: str, text: str, *, kind: Kind = Kind.SYNC, times: int | None = None) -> Reason:
    """The reason of a form of the catalogue. `times` None: as the form says. Raises KeyError for an unknown form."""
    known = catalogue.form(form)
    return Reason(
        kind=kind,
        direction=_DIRECTIONS[known.direction],
        form=form,
        code=known.code,
        text=text,
        times=max(1, known.times) if times is None else times,
    )
