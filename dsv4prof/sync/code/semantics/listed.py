"""Sets of names, written as one text."""

from __future__ import annotations


def listed(names: str) -> frozenset[str]:
    """The words of `names`."""
    return frozenset(names.split())
