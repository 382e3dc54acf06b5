"""Opening a page in the user's browser, where there is one: never one that takes over the terminal."""

from __future__ import annotations

import os
import sys
import webbrowser

_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY")
_CHOSEN = "BROWSER"
_WITH_DESKTOP = ("darwin", "win32")


def can_open() -> bool:
    """Whether a browser with a window could be started. On a server the ones that are left run inside the terminal."""
    return sys.platform in _WITH_DESKTOP or any(os.environ.get(name) for name in (*_DISPLAYS, _CHOSEN))


def open_page(address: str, wanted: bool | None) -> bool:
    """Open `address`; whether that was done. `wanted` None: only for somebody who sits at a terminal."""
    attended = sys.stderr is not None and sys.stderr.isatty()
    if wanted is False or (wanted is None and not attended) or not can_open():
        return False
    try:
        return webbrowser.open(address)
    except (webbrowser.Error, OSError):
        return False
