"""Text that is almost JSON, mended where that needs no guess, and where each place of it lies in the file.

Several Kineto versions write text that is no JSON: raw control characters (pytorch #130622), `inf` and `nan` as
numbers. Mending moves what follows, and a user looks for a fault in the file as it is.
"""

from __future__ import annotations

import codecs
import re
from bisect import bisect_left

import msgspec

CONTROLS = "raw control characters in strings were replaced by spaces"
_CONTROL = bytes(0x20 if code < 0x20 else code for code in range(256))
_BARE_OR_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"|[-+]?\b(?:nan|inf(?:inity)?)\b', re.IGNORECASE)
_LONE_SURROGATE = re.compile(
    rb"(?<!\\)((?:\\\\)*)(?:(\\ud[89ab][0-9a-f]{2}\\ud[c-f][0-9a-f]{2})|\\ud[89a-f][0-9a-f]{2})", re.IGNORECASE
)
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_CONTROL_BYTE = re.compile(rb"[\x00-\x1f]")
# White space of JSON is none of them: between strings it is no fault.
_ILLEGAL = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f]")


def where(data: bytes, place: int) -> str:
    """A byte of a text as a person and an editor find it."""
    line = data.count(b"\n", 0, place) + 1
    return f"line {line:,}, byte {place:,}"


class Mended(msgspec.Struct, frozen=True):
    """`text` is `data` with its faults mended, `notes` a sentence for each kind of fault.

    `control` is the first control character in a string. `grown` says where in `text` a number was replaced and by how
    many bytes that moved the rest, `widened` that bytes were no UTF-8 and may have moved it as well.
    """

    data: bytes
    text: bytes
    notes: list[str]
    control: int | None
    grown: list[tuple[int, int]]
    widened: bool

    def origin(self, place: int) -> int:
        """Where in `data` a place of `text` lies."""
        place -= sum(by for at, by in self.grown if at < place)
        if not self.widened:
            return place
        return bisect_left(range(len(self.data)), place, key=lambda end: len(_utf8(self.data[:end])))

    def where(self, place: int) -> str:
        """A place of `text` in words."""
        return where(self.data, self.origin(place))

    def notes_of_broken_text(self) -> list[str]:
        """The notes that hold where a stray quote turns the text between strings into strings.

        Line ends there prove nothing.
        """
        proof = _ILLEGAL.search(self.data)
        others = [note for note in self.notes if not note.startswith(CONTROLS)]
        if self.control is None or proof is None:
            return others
        return [_control_words(self.data, proof.start()), *others]


def mend(data: bytes) -> Mended:
    """Control characters become spaces, bytes that are no UTF-8 and lone surrogates become U+FFFD, bare nan and inf
    become null.
    """
    notes: list[str] = []
    clean = data.translate(_CONTROL)
    control = _first_control(data) if clean != data else None
    if control is not None:
        notes.append(_control_words(data, control))
    utf8 = _utf8(clean, final=True)
    if utf8 != clean:
        notes.append("bytes that are not UTF-8 were replaced by U+FFFD")
    paired, _ = _LONE_SURROGATE.subn(lambda m: m[0] if m[2] else m[1] + b"\\ufffd", utf8)
    if paired != utf8:
        notes.append("lone surrogates were replaced by U+FFFD")
    text, grown = _without_bare(paired)
    if grown:
        notes.append("nan and inf, which JSON does not have, were read as absent")
    return Mended(data, text, notes, control, grown, utf8 != clean)


def has_lone_surrogate(text: bytes) -> bool:
    """Whether an escape names half of a character, which no text can hold."""
    return any(match[2] is None for match in _LONE_SURROGATE.finditer(text))


def _control_words(data: bytes, place: int) -> str:
    return f"{CONTROLS}, the first at {where(data, place)}"


def _utf8(data: bytes, *, final: bool = False) -> bytes:
    """Without `final` a character that is cut at the end is left out."""
    return codecs.utf_8_decode(data, "replace", final)[0].encode()


def _first_control(data: bytes) -> int | None:
    for match in _STRING.finditer(data):
        if found := _CONTROL_BYTE.search(match[0]):
            return match.start() + found.start()
    return None


def _without_bare(text: bytes) -> tuple[bytes, list[tuple[int, int]]]:
    grown: list[tuple[int, int]] = []
    moved = 0

    def replaced(match: re.Match[bytes]) -> bytes:
        nonlocal moved
        if match[0].startswith(b'"'):
            return match[0]
        by = len(b"null") - len(match[0])
        grown.append((match.start() + moved, by))
        moved += by
        return b"null"

    return _BARE_OR_STRING.sub(replaced, text), grown
