"""Colour, or none: the same words either way."""

from __future__ import annotations

from dsv4prof.model.finding import Severity

_SEVERITY = {Severity.ERROR: "31", Severity.WARNING: "33", Severity.NOTE: "36"}


class Style:
    """ANSI escapes when `color` is on, plain text otherwise."""

    def __init__(self, color: bool) -> None:
        self._color = color

    def _paint(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._color and text else text

    def good(self, text: str) -> str:
        return self._paint("32", text)

    def bad(self, text: str) -> str:
        return self._paint("31", text)

    def faint(self, text: str) -> str:
        return self._paint("2", text)

    def strong(self, text: str) -> str:
        return self._paint("1", text)

    def severity(self, severity: Severity, text: str) -> str:
        return self._paint(_SEVERITY[severity], text)
