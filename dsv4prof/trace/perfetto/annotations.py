"""A slice's arguments between JSON and Perfetto's typed debug annotations, both ways."""

from __future__ import annotations

import struct
from typing import Any

from dsv4prof.trace.perfetto.proto import BYTES, FIXED64, VARINT, fields, message, number, signed, tag, varint
from dsv4prof.trace.perfetto.schema import Annotation, Event
from dsv4prof.trace.wire import NOT_JSON, decode_value

_EVENT = tag(Event.ANNOTATION, BYTES)
_NAME_ID = tag(Annotation.NAME_ID, VARINT)
_TRUE = tag(Annotation.BOOL, VARINT) + b"\x01"
_FALSE = tag(Annotation.BOOL, VARINT) + b"\x00"
_INT = tag(Annotation.INT, VARINT)
_UINT = tag(Annotation.UINT, VARINT)
_DOUBLE = tag(Annotation.DOUBLE, FIXED64)
_STRING = tag(Annotation.STRING, BYTES)
_ENTRY = tag(Annotation.DICT_ENTRY, BYTES)
_ITEM = tag(Annotation.ARRAY_VALUE, BYTES)
# Arguments that are no object travel under this name.
UNNAMED = "args"
_REMEMBERED = 1 << 16
# The kind of an old nested value.
_NESTED_KIND, _DICT, _ARRAY = 1, 1, 2
_NESTED_SCALARS = {5: Annotation.INT, 6: Annotation.DOUBLE, 7: Annotation.BOOL}
_INT64, _UINT64 = range(-(2**63), 2**63), range(2**64)


class AnnotationWriter:
    """Arguments as annotations; `names` maps each key that was met to its number for the sequence's interned data."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self._prefix: dict[str, bytes] = {}
        self._strings: dict[str, bytes] = {}

    def encode(self, args: bytes) -> bytes:
        """The `debug_annotations` fields of a track event for one object of JSON text."""
        try:
            values = decode_value(args)
        except (*NOT_JSON, ValueError):
            values = args.decode(errors="replace")
        if not isinstance(values, dict):
            values = {UNNAMED: values}
        out = []
        for key, value in values.items():
            content = self._key(key) + self._value(value)
            out.append(_EVENT)
            out.append(varint(len(content)))
            out.append(content)
        return b"".join(out)

    def _key(self, key: str) -> bytes:
        prefix = self._prefix.get(key)
        if prefix is None:
            number = self.names[key] = len(self.names) + 1
            prefix = self._prefix[key] = _NAME_ID + varint(number)
        return prefix

    def _value(self, value: Any) -> bytes:
        if isinstance(value, str):
            return self._string(value)
        if isinstance(value, bool):
            return _TRUE if value else _FALSE
        if isinstance(value, int):
            if value in _INT64:
                return _INT + varint(value)
            return _UINT + varint(value) if value in _UINT64 else _untyped(value)
        if isinstance(value, float):
            return _DOUBLE + struct.pack("<d", value)
        if isinstance(value, dict) and value:
            return b"".join(_sized(_ENTRY, self._key(key) + self._value(each)) for key, each in value.items())
        if isinstance(value, list) and value:
            return b"".join(_sized(_ITEM, self._value(each)) for each in value)
        return _untyped(value)

    def _string(self, value: str) -> bytes:
        content = self._strings.get(value)
        if content is None:
            content = _sized(_STRING, value.encode(errors="replace"))
            if len(self._strings) < _REMEMBERED:
                self._strings[value] = content
        return content


def _sized(key: bytes, content: bytes) -> bytes:
    return key + varint(len(content)) + content


def _untyped(value: Any) -> bytes:
    """Nothing is an annotation without a value; an empty object or list says its kind; an integer over 64 bits is text.

    JSON text in an annotation would keep them all, but the importer (v52) aborts on a bare null there.
    """
    if value is None:
        return b""
    if isinstance(value, int):
        return message(Annotation.STRING, b"%d" % value)
    return message(Annotation.NESTED, number(_NESTED_KIND, _DICT if isinstance(value, dict) else _ARRAY))


class AnnotationReader:
    """Annotations as Python values; `names` and `strings` are the sequence's interned ones, which grow."""

    def __init__(self, names: dict[int, str], strings: dict[int, str]) -> None:
        self._names = names
        self._strings = strings

    def pair(self, annotation: bytes) -> tuple[str, Any]:
        """(name, value) of one annotation. Raises BrokenMessageError."""
        name = ""
        value: Any = None
        entries: dict[str, Any] | None = None
        items: list[Any] | None = None
        for field, content in fields(annotation):
            if isinstance(content, int):
                if field == Annotation.NAME_ID:
                    name = self._names.get(content, f"name {content}")
                elif field == Annotation.STRING_ID:
                    value = self._strings.get(content, "")
                else:
                    value = _scalar(field, content, value)
            elif field == Annotation.NAME:
                name = content.decode(errors="replace")
            elif field == Annotation.STRING:
                value = content.decode(errors="replace")
            elif field == Annotation.JSON:
                value = _from_json(content)
            elif field == Annotation.NESTED:
                value = _nested(content)
            elif field == Annotation.DICT_ENTRY:
                key, each = self.pair(content)
                entries = entries if entries is not None else {}
                entries[key] = each
            elif field == Annotation.ARRAY_VALUE:
                items = items if items is not None else []
                items.append(self.pair(content)[1])
        return name, entries if entries is not None else items if items is not None else value


def _scalar(field: int, content: int, otherwise: Any) -> Any:
    if field == Annotation.BOOL:
        return bool(content)
    if field == Annotation.INT:
        return signed(content)
    if field in (Annotation.UINT, Annotation.POINTER):
        return content
    if field == Annotation.DOUBLE:
        return struct.unpack("<d", content.to_bytes(8, "little"))[0]
    return otherwise


def _nested(content: bytes) -> Any:
    """A value in the old nested form."""
    kind = 0
    keys: list[str] = []
    values: list[Any] = []
    items: list[Any] = []
    value: Any = None
    for field, each in fields(content):
        if isinstance(each, int):
            if field == _NESTED_KIND:
                kind = each
            elif field in _NESTED_SCALARS:
                value = _scalar(_NESTED_SCALARS[field], each, value)
        elif field == 2:
            keys.append(each.decode(errors="replace"))
        elif field == 3:
            values.append(_nested(each))
        elif field == 4:
            items.append(_nested(each))
        elif field == 8:
            value = each.decode(errors="replace")
    return dict(zip(keys, values, strict=False)) if kind == _DICT else items if kind == _ARRAY else value


def _from_json(content: bytes) -> Any:
    try:
        return decode_value(content)
    except (*NOT_JSON, ValueError):
        return content.decode(errors="replace")
