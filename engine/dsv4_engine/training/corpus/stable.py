"""Choices that come out alike on every machine and in every process."""

from __future__ import annotations

import hashlib

HELD_OUT_SHARE = 0.04
"""Share of the files, not of their bytes, that no training batch shows."""


def stable_number(text: str) -> int:
    """A number of 64 bits that depends on the text alone."""
    return int.from_bytes(hashlib.blake2b(text.encode("utf-8"), digest_size=8).digest(), "little")


def is_held_out(path: str) -> bool:
    """Whether a file is for evaluation, by its path relative to its source's folder, with forward slashes."""
    return stable_number(f"held out: {path}") < HELD_OUT_SHARE * 2**64
