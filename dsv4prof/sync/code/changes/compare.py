"""Old findings against new ones: new, fixed, removed, unchanged on touched code.

A removed sync counts as fixed only when what replaces it is proven to give the same values and nothing near it could
have needed the wait. The change that sglang took back after a crash looked like an improvement in every other respect.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from dsv4prof.sync.code.changes.git import ChangedFile, ChangeSet
from dsv4prof.sync.code.changes.project import Project
from dsv4prof.sync.code.changes.replacements import proof_of
from dsv4prof.sync.code.changes.staging import Staging, staging_around
from dsv4prof.sync.code.changes.statements import AGAIN
from dsv4prof.sync.code.changes.tree import Function, Tree, tree_of
from dsv4prof.sync.code.found import Audit, Found
from dsv4prof.sync.code.values import LEVELS

Status = Literal["new", "fixed", "removed", "unchanged"]
_SYNC = "DSV1"
_EVENT_WAIT = "DSV106"
_POSSIBLE = "possible"
# How many functions a proof names.
_NAMED = 8


class Protected(msgspec.Struct, frozen=True):
    """An allowance of the old version that says what its sync protects."""

    path: str
    first: int
    last: int
    codes: tuple[str, ...]
    name: str
    reason: str


class Change(msgspec.Struct, frozen=True):
    """`found` is of the new version where the sync is still there, else of the old one.

    `proof` says why a removed sync counts as fixed or does not. `staging` are the lines that it may have protected,
    `protects` what its own allowance said.
    """

    status: Status
    found: Found
    proof: str = ""
    staging: tuple[Staging, ...] = ()
    protects: str = ""
    reason: str = ""


def lines_of_interest(file: ChangedFile) -> tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]:
    """Of the old and the new version of a file: what was touched, widened to whole functions, the same ones in both."""
    trees = tree_of(file.old_path, file.before), tree_of(file.path, file.after)
    names = trees[0].touched(file.removed) | trees[1].touched(file.lines)
    old, new = (tree.spans(names) for tree in trees)
    return (*file.removed, *old), (*file.lines, *new)


def compare(
    changes: ChangeSet,
    old: Audit,
    new: Audit,
    *,
    protected: Iterable[Protected] = (),
    exposed: Callable[[Found, Found], bool] = lambda before, after: False,
    read: Callable[[str], bytes | None] = lambda path: None,
    paths: Callable[[], Iterable[str]] = tuple,
) -> list[Change]:
    """Every change of the touched files, in order of path and line.

    `old` and `new` are audits of the two versions. `exposed` says whether a remark allowed the earlier
    of two versions of a finding, and none the later. `read` gives files that did not change, and `paths` names them
    all: callers may stand in any.
    """
    names = {file.old_path: file.path for file in changes.files if file.before is not None}
    before: dict[str, list[Found]] = _by_path(old.found)
    after: dict[str, list[Found]] = _by_path(new.found)
    files = {file.path: file for file in changes.files}
    pairs, gone, come = _paired(before, after, names, files, exposed)
    trees = {file.path: tree_of(file.path, file.after) for file in changes.files}
    # Of what cannot be read nobody knows what it holds; the audit itself has told why.
    unread = {file.old_path for file in changes.files if file.after is not None and trees[file.path].module is None}
    gone = [found for found in gone if found.path not in unread]
    result = [Change("new", found, proof) for found, proof in come]
    result += [
        Change("unchanged", found)
        for found in pairs
        if (file := files.get(found.path)) is not None and _touched(found, file, trees[file.path])
    ]
    wanted = list(protected)
    judge = _Judge(trees, before, after, Project(trees, read, paths), {file.old_path: file for file in changes.files})
    for found in gone:
        protection = _protection(found, wanted)
        if protection is not None or (found.code.startswith(_SYNC) and found.code != AGAIN):
            result.append(judge.removed(found, protection))
    result = [_not_new(change) if judge.is_wait_of_a_fix(change) else change for change in result]
    return sorted(result, key=lambda change: (change.found.path, change.found.line, change.found.code, change.status))


class _Judge:
    def __init__(
        self,
        trees: Mapping[str, Tree],
        before: Mapping[str, Sequence[Found]],
        after: Mapping[str, Sequence[Found]],
        project: Project,
        files: Mapping[str, ChangedFile],
    ) -> None:
        self._trees = trees
        self._before = before
        self._after = after
        self._waits: set[tuple[str, int]] = set()
        self._project = project
        self._files = files

    def removed(self, found: Found, protection: Protected | None) -> Change:
        file = self._files.get(found.path)
        tree = self._trees.get(file.path) if file is not None else None
        function = self._counterpart(found, tree)
        if protection is not None:
            return Change(
                "removed",
                found,
                f"its allowance says that it protects {protection.name}: {protection.reason}",
                protects=protection.name,
                reason=protection.reason,
            )
        if tree is None or function is None:
            return Change("removed", found, "its function is gone with it; what runs instead was not compared")
        old = tree_of(file.old_path, file.before).functions.get(found.function) if file is not None else None
        proof = proof_of(found, function, self._after.get(tree.path, ()), old, self._before.get(found.path, ()))
        outside = self._outside(found, tree)
        around, looked = staging_around(self._project, tree, function, outside, far=proof.holds)
        # The replacement's own copy is what the proof speaks of.
        staging = tuple(item for item in around if (item.path, item.line) != (tree.path, proof.line))
        if proof.holds and not staging:
            self._waits.add((tree.path, proof.wait))
            return Change("fixed", found, f"{proof.text}; no staging buffer or other stream in {self._where(looked)}")
        text = proof.text
        if proof.holds:
            text += f", but it may have protected {staging[0].what} in {staging[0].function}"
        return Change("removed", found, text, staging)

    def is_wait_of_a_fix(self, change: Change) -> bool:
        """Whether it is the wait for an event by which a copy that no longer waits is proven."""
        found = change.found
        return (
            change.status == "new"
            and found.code == _EVENT_WAIT
            and any(path == found.path and found.line <= line <= found.end_line for path, line in self._waits)
        )

    def _where(self, looked: Sequence[str]) -> str:
        unseen = [name for name in looked if name in self._project.unseen]
        more = f" (too many call {', '.join(unseen)} to look at them)" if unseen else ""
        named = ", ".join(looked[:_NAMED]) + (f" and {len(looked) - _NAMED:,} more" if len(looked) > _NAMED else "")
        return named + more

    def _counterpart(self, found: Found, tree: Tree | None) -> Function | None:
        if tree is None:
            return None
        if found.function in tree.functions:
            return tree.functions[found.function]
        # Moved into a class or out of one.
        last = found.function.rpartition(".")[2]
        same = [function for function in tree.functions.values() if function.short == last]
        return same[0] if len(same) == 1 else None

    def _outside(self, found: Found, tree: Tree) -> list[Function]:
        """The functions of the hot path that stand in other files."""
        outside = []
        for step in found.hot:
            if step.path == tree.path:
                continue
            named = self._project.tree(step.path).functions.get(step.function)
            outside += [named] if named is not None else []
        return outside


def _not_new(change: Change) -> Change:
    """It waits where the sync waited that it stands for."""
    return msgspec.structs.replace(change, status="unchanged")


def _by_path(found: Iterable[Found]) -> dict[str, list[Found]]:
    result: dict[str, list[Found]] = defaultdict(list)
    for item in found:
        result[item.path].append(item)
    return result


def _paired(
    before: Mapping[str, Sequence[Found]],
    after: Mapping[str, Sequence[Found]],
    names: Mapping[str, str],
    files: Mapping[str, ChangedFile],
    exposed: Callable[[Found, Found], bool],
) -> tuple[list[Found], list[Found], list[tuple[Found, str]]]:
    """New versions of what was there before, what has gone, and what has come with a remark.

    Each looser key takes what the stricter ones left: another function, another file. Of equal ones those on lines that
    the change left alone are first: what is gone, or has come, stood on the others.
    """
    old = [(names.get(path, path), found) for path, items in before.items() for found in items]
    new = [found for items in after.values() for found in items]
    old.sort(key=lambda item: item[0] in files and _stands_in(item[1], files[item[0]].removed))
    new.sort(key=lambda found: found.path in files and _stands_in(found, files[found.path].lines))
    kept: list[Found] = []
    risen: list[tuple[Found, str]] = []
    keys: tuple[Callable[[str, Found], tuple[str, ...]], ...] = (
        lambda path, found: (path, found.function, found.code, found.text),
        lambda path, found: (path, found.code, found.text),
        lambda path, found: (found.function.rpartition(".")[2], found.code, found.text),
    )
    for key in keys:
        waiting: dict[tuple[str, ...], list[Found]] = defaultdict(list)
        for path, found in old:
            waiting[key(path, found)].append(found)
        left: list[Found] = []
        matched: set[int] = set()
        for found in new:
            partners = waiting.get(key(found.path, found))
            if not partners:
                left.append(found)
                continue
            partner = partners.pop(0)
            matched.add(id(partner))
            if LEVELS.index(found.level) > LEVELS.index(partner.level) and partner.level == _POSSIBLE:
                risen.append((found, "was only possible before the change"))
            elif exposed(partner, found):
                risen.append((found, "the remark that allowed it is gone"))
            else:
                kept.append(found)
        old = [(path, found) for path, found in old if id(found) not in matched]
        new = left
    return kept, [found for _, found in old], [*((found, "") for found in new), *risen]


def _touched(found: Found, file: ChangedFile, tree: Tree) -> bool:
    function = tree.around(found.line)
    if function is not None:
        return function.touches(file.lines)
    return _stands_in(found, file.lines)


def _stands_in(found: Found, ranges: Iterable[tuple[int, int]]) -> bool:
    return any(first <= found.statement_end and last >= found.statement_line for first, last in ranges)


def _protection(found: Found, wanted: Sequence[Protected]) -> Protected | None:
    for item in wanted:
        if item.path == found.path and item.first <= found.line <= item.last and found.code in item.codes:
            return item
    return None
