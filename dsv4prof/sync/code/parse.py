"""Text to syntax, where text may be anything: each way to fail is one sentence."""

from __future__ import annotations

import ast
import gc
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from dsv4prof.sync.code.files import decode
from dsv4prof.sync.code.found import Problem

# Longer files are machine-written tables; one line of theirs is no finding that anybody could act on.
MAX_LINES = 200_000


@contextmanager
def quiet_gc() -> Iterator[None]:
    """Without the cycle collector: it walks a growing heap of syntax again and again and frees nothing."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def parse(path: str, data: bytes) -> tuple[ast.Module, str] | Problem:
    """The syntax and the text, or why there is none."""
    try:
        text = decode(data)
    except (UnicodeDecodeError, SyntaxError, LookupError):
        return Problem(path, "cannot be decoded: neither UTF-8 nor the encoding that it declares")
    if text.count("\n") > MAX_LINES:
        return Problem(path, f"more than {MAX_LINES:,} lines: left out")
    return _parse_text(path, text)


def _parse_text(path: str, text: str) -> tuple[ast.Module, str] | Problem:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(text), text
    except SyntaxError as error:
        line = error.lineno or 0
        if _looks_like_python_2(text, line):
            return Problem(path, "Python 2 source: left out", line)
        return Problem(path, f"syntax error: {error.msg}", line)
    except ValueError:
        return Problem(path, "holds a null byte: not Python source")
    except (RecursionError, MemoryError):
        return Problem(path, "nested too deeply to be read")


def part(text: str, line: int, end_line: int) -> ast.stmt | None:
    """The function or class on these lines (1-based, decorators included), with its own line numbers."""
    lines = text.split("\n")
    return part_of(lines, line, end_line)


def part_of(lines: list[str], line: int, end_line: int) -> ast.stmt | None:
    """As `part`, of lines split before."""
    chosen = lines[line - 1 : end_line]
    indented = bool(chosen) and chosen[0][:1] in " \t"
    # Empty lines put every node on its own line; `if 1:` stands on the line before, which a class header always leaves.
    head = "\n" * (line - 2) + "if 1:\n" if indented else "\n" * (line - 1)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(head + "\n".join(chosen) + "\n")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    first = tree.body[0] if tree.body else None
    if indented and isinstance(first, ast.If):
        return first.body[0]
    return first


def _looks_like_python_2(text: str, line: int) -> bool:
    lines = text.split("\n")
    shown = lines[line - 1].strip() if 0 < line <= len(lines) else ""
    return shown.startswith(("print ", "exec ", "raise ")) or (shown.startswith("except ") and "," in shown)
