"""Integers of the model as a person reads them: nanoseconds, bytes, counts, shares."""

from __future__ import annotations

from dsv4prof.model.report import Cell, Unit

_TIMES = ((1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"), (1, "ns"))
_SIZES = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "B"))
NOTHING = "-"


def time_scale(ns: int) -> tuple[int, str]:
    """The unit in which a time reads best: (nanoseconds in it, its name)."""
    return next(((size, name) for size, name in _TIMES if abs(ns) >= size), (1, "ns"))


def scaled(ns: int, scale: tuple[int, str]) -> str:
    """A number in a given unit, three digits or more, never in exponents."""
    value = ns / scale[0]
    if scale[0] == 1 or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def time(ns: int) -> str:
    scale = time_scale(ns)
    return f"{scaled(ns, scale)} {scale[1]}"


def size(count: int) -> str:
    unit, name = next(((unit, name) for unit, name in _SIZES if abs(count) >= unit), (1, "B"))
    return f"{count:,} B" if unit == 1 else f"{count / unit:,.1f} {name}"


def cell(value: Cell, unit: Unit) -> str:
    """One value with its unit; `-` when there is none."""
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    if unit == "ns":
        return time(round(value))
    if unit == "bytes":
        return size(round(value))
    if unit == "percent":
        return f"{value:.1f} %"
    if unit == "ppm":
        return f"{value:.1f} ppm"
    if unit == "tokens/s":
        return f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"
