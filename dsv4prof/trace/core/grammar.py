"""JSON's grammar (RFC 8259), strict, for one element of an array that lies somewhere in a text that may end early.

Two forms of it: `ELEMENT`, a pattern that takes the usual event in one match and gives its members, and `walk`, which
says of any text whether an element is whole, cut or no JSON. A pattern that does not match says nothing by itself.
"""

from __future__ import annotations

import re
import sys
from typing import NamedTuple

# JSON is read without ever going back, and a pattern that knows it is twice as fast. Before this version it has faults.
_ONCE = b"+" if sys.version_info >= (3, 11, 5) else b""
_WS = rb"[ \t\n\r]*" + _ONCE
_HEX = rb"[0-9a-fA-F]"
_PLAIN = rb'[^"\\\x00-\x1f]*' + _ONCE
# Half of a surrogate pair alone is JSON, but no reader here makes a string of it.
_WHOLE_ESCAPE = rb'\\(?:["\\/bfnrt]|u(?:(?![dD][89a-fA-F])%b{4}|[dD][89abAB]%b{2}\\u[dD][c-fC-F]%b{2}))' % ((_HEX,) * 3)
_ESCAPE = rb'\\(?:["\\/bfnrt]|u%b{4})' % _HEX
STRING = rb'"%b(?:%b%b)*%b"' % (_PLAIN, _WHOLE_ESCAPE, _PLAIN, _ONCE)
INTEGER = rb"-?(?:0|[1-9][0-9]*)"
NUMBER = INTEGER + rb"(?:\.[0-9]+)?%b(?:[eE][+-]?[0-9]+)?%b" % (_ONCE, _ONCE)
_SCALAR = rb"%b|%b|true|false|null" % (STRING, NUMBER)


def _array(value: bytes) -> bytes:
    return rb"\[%b(?:(?:%b)%b(?:,%b(?!\])|(?=\])))*%b\]" % (_WS, value, _WS, _WS, _ONCE)


def _object(member: bytes, once: bytes = _ONCE) -> bytes:
    return rb"\{%b(?:(?:%b)%b(?:,%b(?!\})|(?=\})))*%b\}" % (_WS, member, _WS, _WS, once)


def _member(key: bytes, value: bytes) -> bytes:
    return rb"%b%b:%b(?:%b)" % (key, _WS, _WS, value)


_VALUE = _SCALAR
for _ in range(3):
    _VALUE = rb"%b|%b" % (_SCALAR, _array(_VALUE))
_ARGUMENTS = _object(_member(STRING, _VALUE))

# What each member that means something may be; anything else needs the general reader.
FIELDS: dict[bytes, bytes] = {
    b"ph": STRING,
    b"name": STRING,
    b"cat": STRING,
    b"pid": rb"%b|%b" % (INTEGER, STRING),
    b"tid": rb"%b|%b" % (INTEGER, STRING),
    b"ts": rb"%b|null" % NUMBER,
    b"dur": rb"%b|null" % NUMBER,
    b"id": rb"%b|%b|null" % (INTEGER, STRING),
    b"s": STRING,
    b"bp": rb'"e"|null',
    b"args": rb"%b|null" % _ARGUMENTS,
}
_KNOWN = rb"|".join(
    _member(rb'"%b"' % key, rb"(?P<%b>%b)" % (key, value)) for key, value in sorted(FIELDS.items(), key=lambda f: f[0])
)
_OTHER = rb'(?!"(?:%b)")' % rb"|".join(FIELDS) + _member(rb'"%b"' % _PLAIN, rb"%b|%b" % (_VALUE, _ARGUMENTS))
ELEMENT = re.compile(_object(rb"%b|%b" % (_KNOWN, _OTHER), b""))
GROUPS = tuple(key.decode() for key in FIELDS)

_LOOSE = re.compile(rb'"%b(?:%b%b)*"' % (_PLAIN, _ESCAPE, _PLAIN))
_STRICT = re.compile(STRING)
_NUMBER = re.compile(NUMBER)
_BLANKS = re.compile(_WS)
_CUT_STRING = re.compile(rb'"%b(?:%b%b)*(?:\\(?:u%b{0,3})?)?\Z' % (_PLAIN, _ESCAPE, _PLAIN, _HEX))
_CUT_NUMBER = re.compile(rb"(?:-|%b(?:\.|(?:\.[0-9]+)?[eE][+-]?))\Z" % INTEGER)
_LITERALS = {ord("t"): b"true", ord("f"): b"false", ord("n"): b"null"}
_DIGITS = frozenset(b"-0123456789")
_IN_NUMBERS = frozenset(b"0123456789+-.eE")
_QUOTE, _OPEN, _CLOSE, _LIST, _UNLIST, _COMMA, _COLON = b'"{}[],:'


class Utf8(NamedTuple):
    """How far a text is UTF-8, and whether it only ends inside a character there."""

    until: int
    cut: bool


class Member(NamedTuple):
    """A member of an element: the key's token, and where its value lies."""

    key: bytes
    start: int
    end: int


class Walk(NamedTuple):
    """What lies at some place of a text.

    `stop`: "" (an element, up to `end`), "more" (the text ends inside it), "broken" (it is no JSON). `members` are an
    object's, in order; `depth` is the deepest nesting of a value in it; `odd`: it is no object, or holds half of a
    surrogate pair.
    """

    stop: str
    end: int = 0
    members: tuple[Member, ...] = ()
    depth: int = 0
    odd: bool = False


def check(text: bytes) -> Utf8:
    """Where a text stops being UTF-8."""
    if text.isascii():
        return Utf8(len(text), False)
    try:
        text.decode()
    except UnicodeDecodeError as error:
        return Utf8(error.start, error.reason == "unexpected end of data")
    return Utf8(len(text), False)


class _Cut(Exception):
    """The text ends here."""


class _Broken(Exception):
    """This is no JSON."""


def walk(text: bytes, at: int, utf8: Utf8) -> Walk:
    """Read one element at `at`, where no blank is. No nesting is too deep for it."""
    try:
        return _Walker(text, utf8).element(at)
    except _Cut:
        return Walk("more")
    except _Broken:
        return Walk("broken")


class _Walker:
    def __init__(self, text: bytes, utf8: Utf8) -> None:
        self.text = text
        self.utf8 = utf8
        self.odd = False
        self.after_comma = False

    def element(self, at: int) -> Walk:
        text = self.text
        if text[at] not in (_OPEN, _LIST):
            return Walk("", self._scalar(at), odd=True)
        members: list[Member] = []
        own_key, value_at = b"", 0
        kinds = bytearray([text[at]])
        depth = 1
        at += 1
        while kinds:
            at = self._blank(at)
            byte = text[at]
            if byte == kinds[-1] + 2:
                # Brackets of a kind are two apart. One that follows a comma closes nothing.
                if self.after_comma:
                    raise _Broken
                kinds.pop()
                at += 1
                if len(kinds) == 1 and kinds[0] == _OPEN:
                    members.append(Member(own_key, value_at, at))
                at = self._behind(at, kinds)
                continue
            if kinds[-1] == _OPEN:
                if byte != _QUOTE:
                    raise _Broken
                end = self._string(at)
                key = text[at:end]
                at = self._blank(end)
                if text[at] != _COLON:
                    raise _Broken
                at = self._blank(at + 1)
                if len(kinds) == 1:
                    own_key, value_at = key, at
                byte = text[at]
            if byte in (_OPEN, _LIST):
                kinds.append(byte)
                depth = max(depth, len(kinds))
                at += 1
                self.after_comma = False
                continue
            at = self._scalar(at)
            if len(kinds) == 1 and kinds[0] == _OPEN:
                members.append(Member(own_key, value_at, at))
            at = self._behind(at, kinds)
        return Walk("", at, tuple(members), depth - 1, self.odd or text[at - 1] != _CLOSE)

    def _behind(self, at: int, kinds: bytearray) -> int:
        """Behind a value: at the bracket that closes its container, or behind the comma."""
        self.after_comma = False
        if not kinds:
            return at
        at = self._blank(at)
        byte = self.text[at]
        if byte == _COMMA:
            self.after_comma = True
            return at + 1
        if byte != kinds[-1] + 2:
            raise _Broken
        return at

    def _blank(self, at: int) -> int:
        match = _BLANKS.match(self.text, at)
        assert match is not None, "no blanks are blanks"
        if match.end() == len(self.text):
            raise _Cut
        return match.end()

    def _scalar(self, at: int) -> int:
        text = self.text
        byte = text[at]
        if byte == _QUOTE:
            return self._string(at)
        if byte in _DIGITS:
            if _CUT_NUMBER.match(text, at):
                raise _Cut
            number = _NUMBER.match(text, at)
            if number is None:
                raise _Broken
            if number.end() == len(text):
                raise _Cut
            if text[number.end()] in _IN_NUMBERS:
                raise _Broken
            return number.end()
        literal = _LITERALS.get(byte)
        if literal is None:
            raise _Broken
        if text.startswith(literal, at):
            return at + len(literal)
        raise _Cut if literal.startswith(text[at : at + len(literal)]) else _Broken

    def _string(self, at: int) -> int:
        loose = _LOOSE.match(self.text, at)
        if loose is None:
            if _CUT_STRING.match(self.text, at) and (self.utf8.cut or self.utf8.until == len(self.text)):
                raise _Cut
            raise _Broken
        if loose.end() > self.utf8.until:
            raise _Broken
        if not self.odd and b"\\u" in loose[0] and not _STRICT.match(self.text, at):
            self.odd = True
        return loose.end()
