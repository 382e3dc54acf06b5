"""How the commands of this package end."""

from __future__ import annotations

import sys
from collections.abc import Callable

from dsv4_engine.errors import EngineError


def exit_status(act: Callable[[], None], *, interrupted: Callable[[], str]) -> int:
    """Of a command: 0, 2 with one sentence and a hint where something is missing or wrong, 130 after Ctrl-C.

    interrupted: what is said then.
    """
    try:
        act()
    except EngineError as error:
        print(f"error: {error.message}" + (f"\nhint: {error.hint}" if error.hint else ""), file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(interrupted(), file=sys.stderr)
        return 130
    return 0


def require_torch(what: str) -> None:
    """Asked for first, so that its absence is one sentence: EngineError, with `what` as its subject."""
    try:
        import torch  # noqa: F401
    except ImportError:
        raise EngineError(f"{what} needs the package 'torch'", hint="pip install 'dsv4prof[engine]'") from None
