"""The one place that prints: results to stdout, everything else to stderr, errors with their hint and exit status."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

from dsv4prof.errors import Dsv4profError, OutputError

if TYPE_CHECKING:
    from dsv4prof.model.report import Report

DEBUG_ENV = "DSV4PROF_DEBUG"
INTERRUPTED = 130
_INTERRUPTED = "interrupted"


class ReaderGoneError(Exception):
    """Whoever read stdout has gone (`| head`). No OSError: typer would end the process with 1 on one."""


class EndedError(Exception):
    """Somebody ended, as it is meant to be ended, a command that goes on for ever: no mistake, though the status is
    that of Ctrl-C."""


def wants_color(stream: TextIO | None) -> bool:
    """Colour only on a terminal; NO_COLOR, FORCE_COLOR and TERM=dumb decide before that."""
    if stream is None:
        return False
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def result(text: str) -> None:
    """The command's result, whole, on stdout. Raises ReaderGoneError, or OutputError when it cannot be written."""
    if sys.stdout is None:
        raise OutputError("cannot write the result: standard output is closed", hint="send it to a file or a pipe")
    encoding = sys.stdout.encoding or "utf-8"
    # A terminal or file that cannot hold a mark or a path of the result still gets all the rest of it.
    whole = (text if text.endswith("\n") else text + "\n").encode(encoding, "replace").decode(encoding)
    try:
        sys.stdout.write(whole)
        sys.stdout.flush()
    except BrokenPipeError as error:
        _discard(sys.stdout)
        raise ReaderGoneError from error
    except OSError as error:
        _discard(sys.stdout)
        raise OutputError(
            f"cannot write the result: {error.strerror or error}", hint="send standard output somewhere else"
        ) from error


def _discard(stream: TextIO) -> None:
    """Point a stream that takes nothing more at nothing, or the interpreter's last flush fails with status 120."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, stream.fileno())
    os.close(nothing)


def emit(report: Report, fmt: str) -> int:
    """Render a report, print it, name the next command, and return its exit status."""
    from dsv4prof.report import render

    result(render(report, fmt, color=wants_color(sys.stdout)))
    return report.verdict.exit_code


def note(text: str) -> None:
    """Progress and notes, on stderr. Where nobody can read them the command goes on: its result does not need them."""
    if sys.stderr is None:
        return
    try:
        print(text, file=sys.stderr, flush=True)
    except OSError:
        _discard(sys.stderr)


def error(message: str, hint: str | None = None) -> None:
    """One sentence, and what to do about it."""
    mark = "\x1b[31merror:\x1b[0m" if wants_color(sys.stderr) else "error:"
    note(f"{mark} {message}")
    if hint:
        note(f"hint: {hint}")


def keep_standard_streams() -> None:
    """Fill closed standard descriptors (`>&-`): the next file opened would take their number, and get their output."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)


@contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """SIGTERM, which schedulers send, ends a command as Ctrl-C does: with its scratch files and processes gone."""

    def end(*_: object) -> None:
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, end)
    except ValueError:
        # Not the main thread: the program around us decides.
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def guarded(call: Callable[[], int | None]) -> int:
    """Run a command and turn whatever it raises into an exit status.

    0 clean, 1 findings or a broken budget, 2 usage, unreadable input or an error of our own, 130 Ctrl-C.
    """
    try:
        status = call() or 0
        if status == INTERRUPTED:
            # Typer turns a Ctrl-C inside a command into this status before anybody above it can say so.
            error(_INTERRUPTED)
        return status
    except Dsv4profError as problem:
        error(problem.message, problem.hint)
        return problem.exit_code
    except KeyboardInterrupt:
        error(_INTERRUPTED)
        return INTERRUPTED
    except ReaderGoneError:
        return 0
    except EndedError:
        return INTERRUPTED
    except _aborts():
        error(_INTERRUPTED)
        return INTERRUPTED
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


def _aborts() -> type[Exception]:
    """What older releases of typer make of a Ctrl-C."""
    from typer import Abort

    return Abort


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


def _usage_hint(problem: Exception) -> str:
    context = getattr(problem, "ctx", None)
    return f"{context.command_path if context is not None else 'dsv4prof'} --help"
