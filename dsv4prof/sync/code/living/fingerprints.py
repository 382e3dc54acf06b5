"""Names of findings that outlive edits: no line numbers, no formatting, and a part that outlives a move.

A fingerprint is made of the rule, the file, the qualified function, the expression as `ast` unparses it, and an ordinal
among equal ones of that function. Its second part leaves out the file and the classes round the function, so that a
function which moved can be matched with what is gone from its old place.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable

import msgspec


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """What makes a finding the same one: `text` is the unparsed expression, of a remark the comment."""

    code: str
    path: str
    function: str
    text: str


class Fingerprint(msgspec.Struct, frozen=True):
    """16 hexadecimal digits each; `moved` is equal wherever the function goes."""

    whole: str
    moved: str


def fingerprints(identities: Iterable[Identity]) -> list[Fingerprint]:
    """One for each, in their order: equal ones are told apart by it, so it has to be the order of the source."""
    seen: Counter[Identity] = Counter()
    made: list[Fingerprint] = []
    for identity in identities:
        ordinal = str(seen[identity])
        seen[identity] += 1
        code, path, function, text = identity.code, identity.path, identity.function, _plain(identity.text)
        made.append(
            Fingerprint(
                _digest(code, path, function, text, ordinal),
                _digest(code, _own_name(function), text, ordinal),
            )
        )
    return made


def _own_name(function: str) -> str:
    return function.rpartition(".")[2]


def _plain(text: str) -> str:
    return " ".join(text.split())


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:16]
