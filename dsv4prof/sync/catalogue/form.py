"""One way of writing a call, and whether it makes the host wait: the unit that all three detectors share."""

from __future__ import annotations

from typing import Literal

import msgspec

Direction = Literal["d2h", "h2d", "wait", "alloc", "none"]
Mark = Literal["source", "measured", "reported", "unverified"]
Vendor = Literal["cuda", "rocm"]
Safety = Literal["same result", "exact total needed", "caller must prove", "changes timing", "none"]


class Fix(msgspec.Struct, frozen=True):
    """What to write instead. `automatic` when the result is provably the same wherever the form is found."""

    text: str
    safety: Safety
    automatic: bool = False


class Form(msgspec.Struct, frozen=True, kw_only=True):
    """`syncs` False is a look-alike that does not wait, listed so that nobody reports it.

    `since` and `until` are torch versions: it syncs from `since` on and up to and including `until` (None: no limit
    known). `event` is what a dispatch mode and Kineto's cpu_op show, outermost first. `times` is how often it waits a
    call, 0: once an element. `measured` are ids of shipped measurements.
    """

    id: str
    code: str
    what: str
    syntax: tuple[str, ...]
    condition: str
    direction: Direction
    syncs: bool = True
    times: int = 1
    event: tuple[str, ...] = ()
    kineto_cuda: str = ""
    kineto_rocm: str = ""
    since: str | None = None
    until: str | None = None
    vendors: tuple[Vendor, ...] = ("cuda", "rocm")
    mark: Mark = "source"
    source: str = ""
    measured: tuple[str, ...] = ()
    fix: Fix | None = None
