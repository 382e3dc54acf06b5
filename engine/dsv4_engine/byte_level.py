"""How byte-level BPE vocabularies spell bytes: each byte is a printable character, so that a vocabulary is plain text.

Printable Latin-1 bytes stand for themselves, the others for the characters from U+0100 on, in order (GPT-2's encoding).
"""

from __future__ import annotations

_PRINTABLE = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
_SHIFTED = [byte for byte in range(256) if byte not in _PRINTABLE]
_BYTE_OF = {chr(byte): byte for byte in _PRINTABLE} | {chr(0x100 + place): byte for place, byte in enumerate(_SHIFTED)}


def spelt_bytes(spelling: str) -> bytes:
    """The bytes of a token as its vocabulary spells it; a character that spells none stands for its own UTF-8."""
    return b"".join(
        bytes((_BYTE_OF[character],)) if character in _BYTE_OF else character.encode() for character in spelling
    )
