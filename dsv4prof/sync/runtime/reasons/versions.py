"""Whether a form waits in a torch version, as the catalogue's `since` and `until` say."""

from __future__ import annotations

import re
from functools import cache
from importlib.metadata import PackageNotFoundError, version

from dsv4prof.sync import catalogue


def parsed(text: str) -> tuple[int, ...]:
    """`2.11.0+cu130` -> (2, 11)."""
    return tuple(int(number) for number in re.findall(r"\d+", text)[:2])


@cache
def running() -> tuple[int, ...]:
    """The installed torch, (99, 0) without one: what newer versions do."""
    try:
        return parsed(version("torch"))
    except PackageNotFoundError:
        return (99, 0)


@cache
def within(form: str, torch: tuple[int, ...]) -> bool:
    """Whether a form waits in that version."""
    known = catalogue.form(form)
    early = known.since is not None and torch < parsed(known.since)
    late = known.until is not None and torch > parsed(known.until)
    return known.syncs and not early and not late
