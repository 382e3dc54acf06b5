"""A file with its fixable findings mended, and what was done to each.

Needs libcst, in the extra `fix`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence

import msgspec

from dsv4prof.errors import InputError, MissingExtraError
from dsv4prof.sync.code.found import Found

# Facts without which no rewrite is tried.
_TOTAL, _RECEIVER, _LIST = "total", "receiver", "list"
# What a patch takes for a line: a form feed or a carriage return within it ends none.
_LINE = re.compile("[^\n]*\n|[^\n]+")


class Edit(msgspec.Struct, frozen=True):
    """One finding mended: the text before and after, and where it stood: lines from 1, columns in characters from 0."""

    found: Found
    before: str
    after: str
    start: tuple[int, int]
    end: tuple[int, int]


class FixedFile(msgspec.Struct, frozen=True):
    """`content` is the whole file with every edit. Findings that no rewrite fits are not named here."""

    path: str
    before: bytes
    content: bytes
    edits: list[Edit]

    def diff(self, prefix: str = "") -> str:
        """As a unified diff; empty where nothing changed."""
        old, new = (_LINE.findall(text.decode("utf-8", "replace")) for text in (self.before, self.content))
        name = prefix + self.path
        lines = difflib.unified_diff(old, new, f"a/{name}", f"b/{name}")
        return "".join(line if line.endswith("\n") else line + "\n\\ No newline at end of file\n" for line in lines)


def fixable(found: Found) -> bool:
    """Whether the analysis has proven what an automatic fix of this finding needs."""
    return any(key in found.facts for key in (_TOTAL, _RECEIVER, _LIST))


def fix(path: str, content: bytes, found: Sequence[Found]) -> FixedFile:
    """`content` with the fixable ones of `found` mended; encoding, line ends, comments and layout stay.

    Raises MissingExtraError without libcst, InputError for a file that it cannot parse.
    """
    wanted = [item for item in found if fixable(item)]
    if not wanted:
        return FixedFile(path, content, content, [])
    try:
        import libcst as cst
    except ImportError as error:
        raise MissingExtraError("libcst", "fix", purpose="--fix") from error
    from dsv4prof.sync.code.fixes.transform import Mender

    try:
        module = cst.parse_module(content)
    except (cst.ParserSyntaxError, UnicodeDecodeError, LookupError) as error:
        raise InputError(f"cannot fix {path}: its syntax cannot be read", hint="mend the file first") from error
    mender = Mender(wanted, content)
    try:
        changed = cst.MetadataWrapper(module).visit(mender)
    except RecursionError as error:
        raise InputError(f"cannot fix {path}: it is nested too deeply", hint="mend the file by hand") from error
    edits = [Edit(*edit) for edit in mender.edits]
    return FixedFile(path, content, changed.bytes if edits else content, edits)
