"""What a text looks like before it becomes tokens, and which texts teach nothing."""

from __future__ import annotations

import io
import re
import tokenize

_BLANK_LINES = re.compile(r"\n{4,}")
_LITERAL = re.compile(
    r"""\b[rbu]{0,2}'(?:[^'\\]|\\.)*'|[rbu]{0,2}'(?:[^'\\]|\\.)*'|[rbu]{0,2}"(?:[^"\\]|\\.)*"|"""
    r"""0x[0-9a-f]+|[0-9][0-9._]*(?:e[+-]?[0-9]+)?j?|\b(?:None|True|False)\b|[\s,:()\[\]{}+*|.-]""",
    re.IGNORECASE,
)
_LARGEST_LITERAL_SHARE = 0.6
_LONGEST_LINE = 2000


def decode_python(data: bytes) -> str | None:
    """The text of a Python file in the encoding that it declares; None where it does not decode."""
    try:
        encoding, _ = tokenize.detect_encoding(io.BytesIO(data).readline)
        return data.decode(encoding)
    except (SyntaxError, UnicodeDecodeError, LookupError):
        return None


def decode_utf8(data: bytes) -> str | None:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None


def normalised(text: str, *, tab: int) -> str:
    """Unix line ends, no blanks at line ends, at most two empty lines in a row, one newline at the end.

    tab: columns of a tab stop in a line's indentation (4 for code; 8 is the rule of reST). Tabs behind the first other
    character stay: they may belong to a string.
    """
    lines = text.lstrip("\ufeff").replace("\r\n", "\n").replace("\r", "\n").replace("\f", "").split("\n")
    joined = "\n".join(_indented(line.rstrip(), tab) for line in lines)
    return _BLANK_LINES.sub("\n\n\n", joined).strip("\n") + "\n"


def is_table(text: str) -> bool:
    """Whether most lines hold only literals (generated tables), or one is longer than anybody writes."""
    lines = [line for line in text.split("\n") if line]
    if any(len(line) > _LONGEST_LINE for line in lines):
        return True
    return sum(map(_is_literal, lines)) > _LARGEST_LITERAL_SHARE * len(lines)


def _indented(line: str, tab: int) -> str:
    body = line.lstrip(" \t")
    indent = line[: len(line) - len(body)]
    return indent.expandtabs(tab) + body if "\t" in indent else line


def _is_literal(line: str) -> bool:
    if line.lstrip().startswith("#"):
        return False
    rest = _LITERAL.sub("", line)
    return not rest or rest.startswith("#")
