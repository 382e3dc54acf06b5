"""Which Python files a change touched, what they held before, and which lines are new: asked of git."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import msgspec

from dsv4prof.errors import InputError, UsageError

_HUNK = re.compile(rb"^@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@")
_SUFFIXES = (".py", ".pyi")
# A hook is called with these of its own repository; with them git takes the folder it stands in for the top.
_OF_A_HOOK = ("GIT_DIR", "GIT_INDEX_FILE", "GIT_PREFIX")


class ChangedFile(msgspec.Struct, frozen=True):
    """`path` and `old_path` are relative to the root that was asked for. `before` is None for a new file, `after` None
    for a deleted one. `lines` are the ranges (first, last) that are new in `after`, `removed` those gone from `before`;
    where lines were only taken or only put in, the two lines round the place stand for it on the other side. `hunks`
    say it exactly, as git does: (first old line, how many, first new line, how many).
    """

    path: str
    old_path: str
    before: bytes | None
    after: bytes | None
    lines: list[tuple[int, int]]
    removed: list[tuple[int, int]]
    hunks: list[tuple[int, int, int, int]] = []

    def now(self, line: int) -> int:
        """The line of `after` at which a line of `before` stands, or stood; 0 where the file is gone."""
        if self.after is None:
            return 0
        moved = 0
        for old, gone, new, come in self.hunks:
            if line < (old if gone else old + 1):
                break
            if gone and line < old + gone:
                return new + min(line - old, come - 1) if come else max(1, new)
            moved = new + (come or 1) - old - (gone or 1)
        return line + moved


class ChangeSet(msgspec.Struct, frozen=True):
    """The change from `base` (a commit) to the working tree. `notes` say where it is not the one that was meant."""

    revision: str
    base: str
    files: list[ChangedFile]
    notes: list[str] = []


def changes_since(root: Path, revision: str) -> ChangeSet:
    """The change of the Python files below `root` since the common ancestor of `revision` and HEAD.

    The working tree counts, committed or not, with files that git does not know yet. Raises InputError where `root` is
    in no git repository or git is missing, UsageError for a revision that git does not know.
    """
    top = Path(os.fsdecode(_ask(root, "rev-parse", "--show-toplevel").removesuffix(b"\n")))
    base, notes = _base(root, revision)
    inside = root.resolve().relative_to(top.resolve()).as_posix()
    scope = [] if inside == "." else [inside]
    tracked = _status(top, base, inside)
    untracked = _ask(top, "--literal-pathspecs", "ls-files", "-z", "--others", "--exclude-standard", "--", *scope)
    tracked += [("A", name, name) for raw in untracked.split(b"\0") if (name := _name(raw)).endswith(_SUFFIXES)]
    files = [_changed(top, base, inside, kind, old, new) for kind, old, new in tracked]
    known = sorted((file for file in files if file is not None), key=lambda file: file.path)
    return ChangeSet(revision, base, known, notes)


def _base(root: Path, revision: str) -> tuple[str, list[str]]:
    """The commit to compare with, and a note where it is no common ancestor."""
    if revision.startswith("-"):
        raise UsageError(f"git does not know the revision {revision!r}", hint="a branch, a tag or a commit")
    try:
        commit = _ask(root, "rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}").decode().strip()
    except InputError:
        raise UsageError(
            f"git does not know the revision {revision!r}", hint="a branch, a tag or a commit; fetch it first"
        ) from None
    try:
        return _ask(root, "merge-base", commit, "HEAD").decode().strip(), []
    except InputError:
        # The revision itself is the best that there is.
        why = f"no common history with {revision} (a shallow clone?): its own later work counts as taken away"
        return commit, [why]


def _status(top: Path, base: str, inside: str) -> list[tuple[str, str, str]]:
    """(kind, old name, new name) of the changed Python files below `inside`, renames followed, out of it and into it.

    A file in conflict is listed twice, as unmerged and as changed; the second is left out.
    """
    raw = _ask(top, "diff", "--name-status", "-z", "-M", "--no-ext-diff", base)
    words = [_name(word) for word in raw.split(b"\0")]
    found: dict[tuple[str, str], tuple[str, str, str]] = {}
    index = 0
    while index < len(words) - 1:
        kind = words[index][:1]
        width = 3 if kind in "RC" else 2
        old, new = words[index + 1], words[index + width - 1]
        index += width
        if not _is_below(new, inside):
            # Moved out of what was asked for: here it is gone.
            kind, new = "D", old
        if _is_below(new, inside) and (new.endswith(_SUFFIXES) or old.endswith(_SUFFIXES)):
            found.setdefault((old, new), (kind, old, new))
    return list(found.values())


def _is_below(name: str, inside: str) -> bool:
    return inside == "." or name.startswith(inside + "/")


def _changed(top: Path, base: str, inside: str, kind: str, old: str, new: str) -> ChangedFile | None:
    before = None if kind == "A" else _before(top, base, old)
    if kind != "D" and not (top / new).is_file():
        # A submodule's folder, a dangling link, a pipe (which would wait for ever): no Python text.
        return None
    try:
        after = None if kind == "D" else (top / new).read_bytes()
    except OSError:
        return None
    hunks: list[tuple[int, int, int, int]] = []
    removed, lines = _all_of(before), _all_of(after)
    if before is not None and after is not None:
        hunks = _hunks(top, base, old, new)
        removed = [_range(first, count) for first, count, _, _ in hunks]
        lines = [_range(first, count) for _, _, first, count in hunks]
    # A file from elsewhere has no place of its own below the root: what it held stands where it stands now.
    old_path = _below(old if _is_below(old, inside) else new, inside)
    return ChangedFile(_below(new, inside), old_path, before, after, lines, removed, hunks)


def _before(top: Path, base: str, name: str) -> bytes | None:
    """What the file held; None where it was a link or a submodule, whose content is no Python."""
    entry = _ask(top, "--literal-pathspecs", "ls-tree", "-z", base, "--", name)
    return _ask(top, "cat-file", "blob", f"{base}:{name}") if entry.startswith(b"100") else None


def _hunks(top: Path, base: str, old: str, new: str) -> list[tuple[int, int, int, int]]:
    options = ("-U0", "-M", "--no-ext-diff", "--no-textconv", "--no-color", "--text")
    diff = _ask(top, "--literal-pathspecs", "diff", *options, base, "--", *dict.fromkeys((old, new)))
    found = []
    for line in diff.split(b"\n"):
        hunk = _HUNK.match(line)
        if hunk:
            counts = [1 if hunk[group] is None else int(hunk[group]) for group in (2, 4)]
            found.append((int(hunk[1]), counts[0], int(hunk[3]), counts[1]))
    return found


def _range(first: int, count: int) -> tuple[int, int]:
    """Of no line the two round the place."""
    return first, first + (count - 1 if count else 1)


def _all_of(content: bytes | None) -> list[tuple[int, int]]:
    return [(1, max(1, content.count(b"\n") + 1))] if content is not None else []


def _below(name: str, inside: str) -> str:
    return name if inside == "." else name.removeprefix(inside + "/")


def _name(raw: bytes) -> str:
    return raw.decode("utf-8", "surrogateescape")


def _ask(folder: Path, *words: str) -> bytes:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *words],
            capture_output=True,
            check=True,
            stdin=subprocess.DEVNULL,
            env=_environment(),
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
        # git's advice stands below what is wrong.
        wrong = next((line for line in said if line.startswith(("fatal:", "error:"))), said[-1] if said else "")
        raise InputError(
            f"git {_verb(words)} failed: {wrong or f'status {error.returncode}'}",
            hint="audit without --diff, or mend the checkout",
        ) from error
    return done.stdout


def _verb(words: Sequence[str]) -> str:
    return next(word for word in words if not word.startswith("-"))


def _environment() -> dict[str, str]:
    """English sentences, and no word of the hook that may have called us. A work tree that is named is meant."""
    here = {**os.environ, "LC_ALL": "C"}
    if "GIT_WORK_TREE" not in here:
        for name in _OF_A_HOOK:
            here.pop(name, None)
    return here
