"""Counted nouns, so that no report says `1 ranks`."""

from __future__ import annotations


def plural(count: int, noun: str) -> str:
    """`1 rank`, `2 ranks`."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"
