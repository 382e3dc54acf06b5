"""Serve the embedded engine over HTTP, until somebody ends it."""

from __future__ import annotations

from collections.abc import Callable

from dsv4prof.target.server.serve import serve as serve_engine
from dsv4prof.target.server.spec import ServeSpec


def serve(
    spec: ServeSpec,
    *,
    progress: Callable[[str], None] = lambda event: None,
    ready: Callable[[str], None] = lambda url: None,
) -> bool:
    """True when Ctrl-C ended it, False for SIGTERM. `ready` hears the address once requests are answered.

    Raises UsageError, InputError and MissingExtraError for what is refused, RankFailedError when the engine fails.
    """
    return serve_engine(spec, progress=progress, ready=ready)
