"""Files that a command leaves beside its report."""

from __future__ import annotations

from pathlib import Path

from dsv4prof.errors import OutputError


def require_writable(path: Path, *, option: str) -> None:
    """OutputError where the file cannot be written: asked before minutes of work whose result would be lost."""
    try:
        with path.open("ab"):
            pass
    except OSError as error:
        raise OutputError(
            f"{option}: {path} cannot be written: {error.strerror or error}", hint=f"name another file with {option}"
        ) from error
