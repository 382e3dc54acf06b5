"""Mending files: what an automatic fix would write, and writing it without losing what somebody else wrote."""

from __future__ import annotations

import ast
import errno
import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from dsv4prof.api.audit_targets import Targets
from dsv4prof.errors import InputError, OutputError
from dsv4prof.model.finding import SourceEdit
from dsv4prof.recorder.atomic import atomic_path
from dsv4prof.sync.code.fixes.apply import FixedFile, fix, fixable
from dsv4prof.sync.code.found import Found


def plan_fixes(where: Targets, found: Iterable[Found]) -> tuple[list[FixedFile], list[str]]:
    """The files that would change, in order of path, and a sentence for each that cannot be; nothing is written.

    Raises MissingExtraError without libcst where there is something to fix.
    """
    by_path: dict[str, list[Found]] = defaultdict(list)
    for item in found:
        if fixable(item):
            by_path[item.path].append(item)
    planned = []
    notes = []
    for path, items in sorted(by_path.items()):
        try:
            content = (where.root / path).read_bytes()
        except OSError:
            # The audit itself has reported it.
            continue
        try:
            fixed = fix(path, content, items)
        except InputError as error:
            notes.append(error.message)
            continue
        if fixed.edits and _parses(fixed.content):
            planned.append(fixed)
    return planned, notes


def edits_of(fixed: Sequence[FixedFile], where: Targets) -> dict[int, SourceEdit]:
    """By the identity of the finding, the edit that mends it."""
    return {
        id(edit.found): SourceEdit(
            where.shown(each.path), edit.start[0], edit.start[1] + 1, edit.end[0], edit.end[1] + 1, edit.after
        )
        for each in fixed
        for edit in each.edits
    }


def diff_of(fixed: Sequence[FixedFile], where: Targets) -> str:
    """All of it as one unified diff, with paths as they are called from the working directory."""
    prefix = where.shown("").strip("/")
    return "".join(each.diff(f"{prefix}/" if prefix not in ("", ".") else "") for each in fixed)


def write_fixes(fixed: Sequence[FixedFile], where: Targets) -> None:
    """Write every file whole or not at all, with its own permissions; links stay links.

    Raises OutputError for a file that has changed since it was read or cannot be written; those before it are written.
    """
    for each in fixed:
        path = (where.root / each.path).resolve()
        try:
            if path.read_bytes() != each.before:
                raise OutputError(f"{where.shown(each.path)} has changed while it was fixed", hint="run it again")
            _replace(path, each.content)
        except OSError as error:
            raise OutputError(
                f"cannot write {where.shown(each.path)}: {error.strerror or error}", hint="make it writable"
            ) from error


def _replace(path: Path, content: bytes) -> None:
    mode = path.stat().st_mode
    if not os.access(path, os.W_OK):
        # The folder would allow a new file in its place; whoever made it read-only meant something.
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    with atomic_path(path) as part:
        part.write_bytes(content)
        part.chmod(mode)


def _parses(content: bytes) -> bool:
    """A rewrite that broke the file would be our fault: then nothing of it is written."""
    try:
        ast.parse(content)
    except (SyntaxError, ValueError):
        return False
    return True
