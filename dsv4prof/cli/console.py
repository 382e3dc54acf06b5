"""The one place that prints: results to stdout, everything else to stderr, errors with their hint and exit status."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, TextIO

from dsv4prof.errors import Dsv4profError

if TYPE_CHECKING:
    from dsv4prof.model.report import Report

DEBUG_ENV = "DSV4PROF_DEBUG"


def wants_color(stream: TextIO) -> bool:
    """Colour only on a terminal; NO_COLOR, FORCE_COLOR and TERM=dumb decide before that."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def result(text: str) -> None:
    """The command's result, whole, on stdout."""
    sys.stdout.write(text if text.endswith("\n") else text + "\n")
    sys.stdout.flush()


def emit(report: Report, fmt: str) -> int:
    """Render a report, print it, name the next command, and return its exit status."""
    from dsv4prof.report import render

    result(render(report, fmt, color=wants_color(sys.stdout)))
    return report.verdict.exit_code


def note(text: str) -> None:
    """Progress and notes, on stderr."""
    print(text, file=sys.stderr, flush=True)


def error(message: str, hint: str | None = None) -> None:
    """One sentence, and what to do about it."""
    mark = "\x1b[31merror:\x1b[0m" if wants_color(sys.stderr) else "error:"
    note(f"{mark} {message}")
    if hint:
        note(f"hint: {hint}")


def guarded(call: Callable[[], int | None]) -> int:
    """Run a command and turn whatever it raises into an exit status.

    0 clean, 1 findings or a broken budget, 2 usage, unreadable input or an error of our own, 130 Ctrl-C.
    """
    try:
        return call() or 0
    except Dsv4profError as problem:
        error(problem.message, problem.hint)
        return problem.exit_code
    except KeyboardInterrupt:
        error("interrupted")
        return 130
    except BrokenPipeError:
        # The reader has gone (`| head`): point stdout at nothing, so that the interpreter's last flush is quiet.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except _usage_errors() as problem:
        error(_usage_message(problem), _usage_hint(problem))
        return 2
    except Exception as problem:  # noqa: BLE001  the outermost frame: nobody above could handle it
        if os.environ.get(DEBUG_ENV):
            traceback.print_exc()
        where = traceback.extract_tb(problem.__traceback__)[-1]
        error(
            f"internal error: {type(problem).__name__}: {problem} ({where.name}, {where.filename}:{where.lineno})",
            f"this is a fault of dsv4prof; {DEBUG_ENV}=1 prints the stack",
        )
        return 2


def _usage_errors() -> type[Exception]:
    """Typer carries a click of its own in newer releases and uses the installed one in older ones."""
    try:
        from typer._click.exceptions import ClickException
    except ImportError:
        from click.exceptions import ClickException  # type: ignore[assignment]
    return ClickException


def _usage_message(problem: Exception) -> str:
    message: str = problem.format_message()  # type: ignore[attr-defined]
    return message


def _usage_hint(problem: Exception) -> str | None:
    context = getattr(problem, "ctx", None)
    return f"{context.command_path} --help" if context is not None else None
