"""Stop strings: where a text ends, when it arrives in pieces that know nothing of the strings' borders."""

from __future__ import annotations

from collections.abc import Sequence

from dsv4_engine.chat.held import held_suffix


class StopMatcher:
    """Passes a text on until a stop string begins; what may still become one waits.

    matched: the string that ended the text, of several that end at one character the one that began first; None so far.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self.matched: str | None = None

    def push(self, text: str) -> str:
        """What is certain not to belong to a stop string. Nothing comes any more once one has matched."""
        if self.matched is not None:
            return ""
        whole = self._held + text
        found = self._earliest_end(whole)
        if found is not None:
            place, self.matched = found
            self._held = ""
            return whole[:place]
        cut = len(whole) - held_suffix(whole, self._stops)
        self._held = whole[cut:]
        return whole[:cut]

    def flush(self) -> str:
        """What still waited, when the text is over."""
        held, self._held = self._held, ""
        return held

    def _earliest_end(self, text: str) -> tuple[int, str] | None:
        """The match that is complete first: who reads character by character stops there."""
        found = [(place + len(stop), place, stop) for stop in self._stops if (place := text.find(stop)) >= 0]
        if not found:
            return None
        _, place, stop = min(found)
        return place, stop
