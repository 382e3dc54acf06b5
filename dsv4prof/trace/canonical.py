"""Events as the merged trace writes them, from any reader that does not work in columns; the scanner takes them whole.

Times are ns as in the file, without its base time.
"""

from __future__ import annotations

import msgspec

_INT64 = range(-(2**63), 2**63)


def microseconds(ns: int) -> bytes:
    """A time as decimal microseconds: three digits, or none when it is whole."""
    whole, part = divmod(ns, 1000)
    return b"%d.%03d" % (whole, part) if part else b"%d" % whole


def canonical(
    ph: str,
    name: str,
    category: str,
    place: tuple[int | str, int | str],
    at_ns: int,
    *,
    dur_ns: int | None = None,
    id: int | str | None = None,
    scope: str | None = None,
    binding: str | None = None,
    args: bytes | msgspec.Raw | None = None,
) -> bytes:
    """One event as JSON; `place` is its pid and tid."""
    pid, tid = place
    parts = [
        b'{"ph":%b,"cat":%b,"name":%b,"pid":%b,"tid":%b,"ts":%b'
        % (*map(_word, (ph, category, name)), _number(pid), _number(tid), microseconds(at_ns))
    ]
    if dur_ns is not None:
        parts.append(b',"dur":' + microseconds(dur_ns))
    if id is not None:
        parts.append(b',"id":' + _number(id))
    if scope is not None:
        parts.append(b',"s":' + _word(scope))
    if binding is not None:
        parts.append(b',"bp":' + _word(binding))
    if args is not None:
        parts.append(b',"args":' + bytes(args))
    return b"".join(parts) + b"}"


def _word(text: str) -> bytes:
    return msgspec.json.encode(text)


def _number(value: int | str) -> bytes:
    """An integer, or text; one beyond 64 bits, which is damage, is kept as text."""
    return b"%d" % value if isinstance(value, int) and value in _INT64 else _word(str(value))
