"""The reasons in a record come from other people's programs, and their words may be no text at all.

A lone surrogate cannot be written as UTF-8, and an exception's `__str__` may raise: neither may cost the record that
says how a recording ended.
"""

from __future__ import annotations

import traceback
import warnings
from contextlib import suppress

_LONGEST = 2000


def warn(message: str) -> None:
    """A warning that raises nothing, whatever filters the program has: it may come out of the program's own loop."""
    with suppress(Warning):
        warnings.warn(f"dsv4prof: {message}", stacklevel=3)


def describe(error: BaseException) -> str:
    """`ValueError: boom`, as a traceback's last line has it, whatever the exception does when it is asked."""
    return "".join(traceback.format_exception_only(type(error), error)).strip()


def writable(text: str) -> str:
    """The text with what UTF-8 cannot hold escaped, and without the middle of what nobody would read."""
    plain = text.encode("utf-8", "backslashreplace").decode()
    if len(plain) <= _LONGEST:
        return plain
    half = _LONGEST // 2
    return f"{plain[:half]} [...] {plain[-half:]}"
