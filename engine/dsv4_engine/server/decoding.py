"""A request's body as typed fields, or one sentence that names the field at fault."""

from __future__ import annotations

import difflib
import re
from typing import Any, TypeVar

import msgspec

from dsv4_engine.server.errors import ApiError
from dsv4_engine.server.fields import INERT, NAMES, ONLY, SamplingFields

Fields = TypeVar("Fields", bound=SamplingFields)
_PLACE = re.compile(r" - at `([^`]*)`$")
_WORDS = {
    "`bool`": "true or false",
    "`int`": "a whole number",
    "`float`": "a number",
    "`str`": "a string",
    "`array`": "a list",
    "`object`": "an object",
    "`null`": "null",
}


def decode_fields(body: bytes, kind: type[Fields]) -> Fields:
    """ApiError (400) on what is no JSON object, on fields that are unknown, cannot be obeyed, or hold a wrong value.

    null means "not said" everywhere, as OpenAI's clients send it.
    """
    said = decode_object(body)
    names = NAMES[kind]
    for name, value in said.items():
        if name in names or name in INERT:
            continue
        if name not in ONLY:
            raise ApiError(f"unknown field {shown(name)}{_meant(name, names)}", param=name[:64], code="unknown_field")
        allowed, why = ONLY[name]
        if not any(value == each and type(value) is type(each) for each in allowed):
            raise ApiError(f"{name} is not supported: {why}", param=name, code="unsupported_field")
    given = {name: value for name, value in said.items() if name in names and value is not None}
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        raise _wrong_value(str(error)) from None
    except RecursionError:
        raise ApiError("the body is nested too deeply") from None


def decode_object(body: bytes) -> dict[str, Any]:
    """The body as a JSON object; ApiError (400) where it is none."""
    if not body.strip():
        raise ApiError("the body is empty, and has to be a JSON object")
    try:
        said = msgspec.json.decode(body)
    except UnicodeDecodeError:
        raise ApiError("the body is not UTF-8") from None
    except msgspec.DecodeError as error:
        # Before it looks for UTF-8, the decoder looks for JSON.
        raise ApiError("the body is not UTF-8" if not _is_utf8(body) else f"the body is no JSON: {error}") from None
    except RecursionError:
        raise ApiError("the body is nested too deeply") from None
    if not isinstance(said, dict):
        raise ApiError("the body is no JSON object")
    return said


def shown(value: object) -> str:
    """A client's own words in a sentence, no longer than a line."""
    text = ascii(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _is_utf8(body: bytes) -> bool:
    try:
        body.decode()
    except UnicodeDecodeError:
        return False
    return True


def _meant(name: str, names: frozenset[str]) -> str:
    close = difflib.get_close_matches(name.lower()[:60], sorted(names | ONLY.keys() | INERT), n=1, cutoff=0.7)
    return f"; did you mean {close[0]!r}?" if close else ""


def _wrong_value(complaint: str) -> ApiError:
    """msgspec's complaint in plain words: "Expected `int` <= 128 - at `$.n`"."""
    match = _PLACE.search(complaint)
    place = match[1].removeprefix("$").removeprefix(".") if match else ""
    what = complaint[: match.start()] if match else complaint
    if what.startswith("Object missing required field"):
        missing = what.split("`")[1]
        return ApiError(f"{missing} is missing", param=missing, code="missing_field")
    for word, plain in _WORDS.items():
        what = what.replace(word, plain)
    what = re.sub(r"`([^`]*)`", lambda found: _alternatives(found[1]), what)
    param = place.split("[")[0].split(".")[0] or None
    return ApiError(f"{place or 'the body'}: {what[:1].lower()}{what[1:]}", param=param, code="invalid_value")


def _alternatives(kinds: str) -> str:
    """`str | array` as "a string or a list"; null is how a field is left out, and not worth a word."""
    words = [_WORDS.get(f"`{kind}`", kind) for kind in kinds.split(" | ") if kind != "null"]
    return " or ".join(words)
