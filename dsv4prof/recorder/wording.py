"""The reasons in a record come from other people's programs, and their words may be no text at all.

A lone surrogate cannot be written as UTF-8, and an exception's `__str__` may raise: neither may cost the record that
says how a recording ended.
"""

from __future__ import annotations

import re
import traceback
import warnings
from collections.abc import Iterable
from contextlib import suppress

_LONGEST = 2000
_KEY = re.compile(r"--[a-z-]*api[-_]key")


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


def recorded_command(words: Iterable[str]) -> list[str]:
    """A command line as a record may keep it: writable, and without the keys of servers, which are nobody's business.

    Of this package's own options and of SGLang's, such as --admin-api-key.
    """
    told: list[str] = []
    for word in words:
        name, equals, _ = word.partition("=")
        if told and _KEY.fullmatch(told[-1]):
            told.append("...")
        else:
            told.append(f"{name}=..." if equals and _KEY.fullmatch(name) else writable(word))
    return told
