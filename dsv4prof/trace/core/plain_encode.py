"""Rows of a rank -> the canonical lines of a merged Chrome trace, in Python alone."""

from __future__ import annotations

import msgspec

from dsv4prof.trace.columns import BINDS_ENCLOSING, ID_IS_WORD, OutBlock

_SEPARATOR = b",\n"
_SLICE, _INSTANT, _COUNTER, _META = b"XiCM"
_FLOWS = frozenset(b"stf")


class PlainEncoder:
    """Writes blocks of one rank. `words` and `places` may grow between blocks; what they hold may not change.

    `places[p]` is the text of a merged track (`"pid":3,"tid":7`), `prefix` what makes an id the rank's own (`3:`).
    """

    def __init__(self, words: list[str], places: list[bytes], prefix: bytes) -> None:
        self._words = words
        self._places = places
        self._prefix = prefix
        self._encoded: list[bytes] = []

    def block(self, block: OutBlock) -> bytes:
        """The lines of a block, joined by a comma and a line's end; phase M has none.

        Raises IndexError when a row names a word, a track or a piece of text that does not exist.
        """
        words = self._encoded
        words += map(msgspec.json.encode, self._words[len(words) :])
        lines = []
        columns = (block.rows.tolist(), block.ts.tolist(), block.dur.tolist(), block.place.tolist(), block.ids.tolist())
        for row, ts, dur, place, flow in zip(*columns, strict=True):
            _, _, number, name, cat, _, args_at, args_len, ph, scope, flags, _ = row
            if ph == _META:
                continue
            check_range(name, cat, place, len(words), len(self._places))
            if args_at + args_len > len(block.text):
                raise IndexError(f"arguments at {args_at} + {args_len} lie outside the text")
            where = self._places[place]
            args = b',"args":' + block.text[args_at : args_at + args_len] if args_len else b""
            at = microseconds(ts)
            if ph == _SLICE:
                line = b'{"ph":"X","cat":%b,"name":%b,%b,"ts":%b,"dur":%b%b}' % (
                    words[cat], words[name], where, at, microseconds(dur), args,
                )  # fmt: skip
            elif ph in _FLOWS:
                bp = b',"bp":"e"' if flags & BINDS_ENCLOSING else b""
                line = b'{"ph":"%c","id":%d,"cat":%b,"name":%b,%b,"ts":%b%b}' % (
                    ph, flow, words[cat], words[name], where, at, bp,
                )  # fmt: skip
            elif ph == _INSTANT:
                line = b'{"ph":"i","s":"%c","cat":%b,"name":%b,%b,"ts":%b%b}' % (
                    scope, words[cat], words[name], where, at, args,
                )  # fmt: skip
            elif ph == _COUNTER:
                line = b'{"ph":"C","name":%b,%b,"ts":%b%b}' % (words[name], where, at, args)
            else:
                if flags & ID_IS_WORD:
                    check_range(number, 0, 0, len(words), 1)
                own = words[number][1:-1] if flags & ID_IS_WORD else b"%d" % number
                line = b'{"ph":"%c","id":"%b%b","cat":%b,"name":%b,%b,"ts":%b%b}' % (
                    ph, self._prefix, own, words[cat], words[name], where, at, args,
                )  # fmt: skip
            lines.append(line)
        return _SEPARATOR.join(lines)


def check_range(first: int, second: int, place: int, words: int, places: int) -> None:
    """Raise IndexError unless both words and the place exist; a negative one would count from the end."""
    if not (0 <= first < words and 0 <= second < words and 0 <= place < places):
        raise IndexError(f"a row names words {first} and {second} of {words}, place {place} of {places}")


def microseconds(ns: int) -> bytes:
    """Exact decimal us, without decimals when it is whole."""
    whole, part = divmod(abs(ns), 1000)
    sign = b"-" if ns < 0 else b""
    return b"%b%d.%03d" % (sign, whole, part) if part else b"%b%d" % (sign, whole)
