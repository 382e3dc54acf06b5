"""One exception tree: what went wrong in a sentence, what to do next, and the exit status.

Exactly one place (cli.console) prints these and exits. Library callers catch `Dsv4profError`.
"""

from __future__ import annotations


class Dsv4profError(Exception):
    """Base of every error that a user can act on.

    `message` is one sentence; `hint` says what to do next; `exit_code` is what the command line returns.
    """

    exit_code = 2

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message


class UsageError(Dsv4profError):
    """The request itself makes no sense: an unknown option value, an impossible plan, a port in use."""


class InputError(Dsv4profError):
    """A file or folder cannot be read as what it should be."""


class NotATraceError(InputError):
    """A file that reads well and is something else than a trace."""


class OutputError(Dsv4profError):
    """A result cannot be written where it was asked for; found before the run where possible."""


class LifetimeError(Dsv4profError):
    """A recorder was asked for a move that its state does not allow."""


class MissingExtraError(Dsv4profError):
    """An optional package is needed and absent.

    The command that installs it is in the message as well: a library's caller sees only that in a traceback.
    """

    def __init__(self, package: str, extra: str, *, purpose: str) -> None:
        install = f"pip install 'dsv4prof[{extra}]'"
        super().__init__(f"{purpose} needs the package {package!r}, which is not installed: {install}", hint=install)


class RankFailedError(Dsv4profError):
    """A rank of a run died or failed; what the others recorded is kept. `session` is its folder, where there is one."""

    session: str | None = None


class InterruptedRunError(Dsv4profError):
    """Ctrl-C, after what was recorded has been saved."""

    exit_code = 130
