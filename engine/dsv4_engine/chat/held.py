"""How much of a text's end must wait, because the next characters may make it the beginning of something else."""

from __future__ import annotations

from collections.abc import Iterable


def held_suffix(text: str, patterns: Iterable[str]) -> int:
    """Length of the longest end of `text` that begins one of the patterns without being all of it."""
    return max((_overlap(text, pattern) for pattern in patterns), default=0)


def first_match(text: str, patterns: Iterable[str], start: int = 0) -> tuple[int, str] | None:
    """Where the pattern that begins first begins, and which; of several at one place the longest."""
    found = [(place, -len(pattern), pattern) for pattern in patterns if (place := text.find(pattern, start)) >= 0]
    if not found:
        return None
    place, _, pattern = min(found)
    return place, pattern


def _overlap(text: str, pattern: str) -> int:
    longest = min(len(text), len(pattern) - 1)
    return next((size for size in range(longest, 0, -1) if pattern.startswith(text[-size:])), 0)
