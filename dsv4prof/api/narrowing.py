"""What a command line says of the part of a trace to keep."""

from __future__ import annotations

from dsv4prof.errors import UsageError
from dsv4prof.trace.narrow import Narrowing, parse_numbers, parse_window


def narrow(
    window: str | None = None,
    *,
    ranks: str | None = None,
    steps: str | None = None,
    categories: str | None = None,
    python: bool = True,
) -> tuple[str | None, Narrowing]:
    """(name of a session's window, what to keep): a window with a colon is a time. Raises UsageError."""
    timed = window is not None and ":" in window
    wanted = parse_numbers(steps, "steps") if steps is not None else None
    if wanted is not None and max(wanted) - min(wanted) != len(wanted) - 1:
        raise UsageError(f"the steps {steps!r} are not one after the other", hint="give one range: --steps 10-12")
    named = frozenset(part.strip() for part in categories.split(",")) if categories is not None else None
    if named is not None and not all(named):
        raise UsageError(f"{categories!r} names no category", hint="give names such as kernel,cpu_op")
    return None if timed else window, Narrowing(
        ranks=parse_numbers(ranks, "ranks") if ranks is not None else None,
        window=parse_window(window) if timed and window is not None else None,
        steps=(min(wanted), max(wanted)) if wanted is not None else None,
        categories=named,
        python=python,
    )
