"""Which Python files a change touched, what they held before, and which lines are new: asked of git."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import msgspec

from dsv4prof.errors import InputError, UsageError

_HUNK = re.compile(rb"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_SUFFIXES = (".py", ".pyi")


class ChangedFile(msgspec.Struct, frozen=True):
    """`path` and `old_path` are relative to the root that was asked for. `before` is None for a new file, `after` None
    for a deleted one. `lines` are the ranges (first, last) that are new in `after`; `removed` those gone from `before`.
    """

    path: str
    old_path: str
    before: bytes | None
    after: bytes | None
    lines: list[tuple[int, int]]
    removed: list[tuple[int, int]]


class ChangeSet(msgspec.Struct, frozen=True):
    """The change from `base` (a commit) to the working tree."""

    revision: str
    base: str
    files: list[ChangedFile]


def changes_since(root: Path, revision: str) -> ChangeSet:
    """The change of the Python files below `root` since the common ancestor of `revision` and HEAD.

    The working tree counts, committed or not, with files that git does not know yet. Raises InputError where `root` is
    in no git repository or git is missing, UsageError for a revision that git does not know.
    """
    top = Path(_ask(root, "rev-parse", "--show-toplevel").decode().strip())
    base = _base(root, revision)
    inside = root.resolve().relative_to(top.resolve()).as_posix()
    scope = [] if inside == "." else [inside]
    tracked = _status(top, base, scope)
    untracked = _ask(top, "ls-files", "-z", "--others", "--exclude-standard", "--", *scope).split(b"\0")
    tracked += [("A", name, name) for raw in untracked if (name := _name(raw)).endswith(_SUFFIXES)]
    files = [_changed(top, base, inside, kind, old, new) for kind, old, new in tracked]
    return ChangeSet(revision, base, sorted((file for file in files if file is not None), key=lambda file: file.path))


def _base(root: Path, revision: str) -> str:
    if revision.startswith("-"):
        raise UsageError(f"git does not know the revision {revision!r}", hint="a branch, a tag or a commit")
    try:
        commit = _ask(root, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}").decode().strip()
    except InputError:
        raise UsageError(
            f"git does not know the revision {revision!r}", hint="a branch, a tag or a commit; fetch it first"
        ) from None
    try:
        return _ask(root, "merge-base", commit, "HEAD").decode().strip()
    except InputError:
        # No common history (a shallow clone): the revision itself is the best that there is.
        return commit


def _status(top: Path, base: str, scope: Sequence[str]) -> list[tuple[str, str, str]]:
    """(kind, old name, new name) of the changed Python files, renames followed."""
    raw = _ask(top, "diff", "--name-status", "-z", "-M", "--no-ext-diff", base, "--", *scope)
    words = [_name(word) for word in raw.split(b"\0")]
    found: list[tuple[str, str, str]] = []
    index = 0
    while index < len(words) - 1:
        kind = words[index][:1]
        width = 3 if kind in "RC" else 2
        old, new = words[index + 1], words[index + width - 1]
        index += width
        if new.endswith(_SUFFIXES) or old.endswith(_SUFFIXES):
            found.append((kind, old, new))
    return found


def _changed(top: Path, base: str, inside: str, kind: str, old: str, new: str) -> ChangedFile | None:
    before = None if kind == "A" else _ask(top, "show", f"{base}:{old}")
    try:
        after = None if kind == "D" else (top / new).read_bytes()
    except OSError:
        # A submodule's folder, a dangling link: no Python text.
        return None
    removed, lines = _hunks(top, base, old, new, before, after)
    return ChangedFile(_below(new, inside), _below(old, inside), before, after, lines, removed)


def _hunks(
    top: Path, base: str, old: str, new: str, before: bytes | None, after: bytes | None
) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    if before is None or after is None:
        return _all_of(before), _all_of(after)
    diff = _ask(top, "diff", "-U0", "-M", "--no-ext-diff", "--no-color", base, "--", *dict.fromkeys((old, new)))
    removed: list[tuple[int, int]] = []
    lines: list[tuple[int, int]] = []
    for line in diff.split(b"\n"):
        hunk = _HUNK.match(line)
        if hunk:
            for ranges, first, count in ((removed, hunk[1], hunk[2]), (lines, hunk[3], hunk[4])):
                length = 1 if count is None else int(count)
                if length:
                    ranges.append((int(first), int(first) + length - 1))
    return removed, lines


def _all_of(content: bytes | None) -> list[tuple[int, int]]:
    return [(1, max(1, content.count(b"\n") + 1))] if content is not None else []


def _below(name: str, inside: str) -> str:
    return name if inside == "." else name.removeprefix(inside + "/")


def _name(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _ask(folder: Path, *words: str) -> bytes:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *words], capture_output=True, check=True, stdin=subprocess.DEVNULL
        )
    except FileNotFoundError as error:
        raise InputError(
            "--diff needs git, which is not installed", hint="install git, or audit without --diff"
        ) from error
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode("utf-8", "replace").strip().splitlines()
        if any("not a git repository" in line for line in said):
            raise InputError(
                f"{folder} is in no git repository", hint="run in a checkout, or audit without --diff"
            ) from error
        raise InputError(
            f"git {words[0]} failed: {said[-1] if said else f'status {error.returncode}'}",
            hint="audit without --diff, or mend the checkout",
        ) from error
    return done.stdout
