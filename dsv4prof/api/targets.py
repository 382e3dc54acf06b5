"""Where a merge may write. A trace took a run to record: nothing is replaced but an earlier merge of the same one."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from dsv4prof.api.formats import JSON, check_format
from dsv4prof.errors import InputError, OutputError, UsageError
from dsv4prof.trace.planning import MergePlan
from dsv4prof.trace.unmerge import is_ours
from dsv4prof.trace.whole import read_head
from dsv4prof.trace.write import merged_metadata

_KEY = b'"dsv4prof":'
_HEAD_BYTES = 1 << 16


class _Rank(msgspec.Struct):
    """The part of a merged file's header that tells recordings apart."""

    source: str
    file_base_ns: int
    metadata: dict[str, Any]
    counts: dict[str, int]

    @property
    def identity(self) -> tuple[object, ...]:
        """Kineto draws a trace_id for each trace; what wrote none is told by its number of events."""
        mark = self.metadata.get("trace_id") or tuple(sorted(self.counts.items()))
        return self.source, self.file_base_ns, mark


class _Header(msgspec.Struct):
    ranks: list[_Rank]


def check_target(target: Path, inputs: Sequence[Path | str], *, force: bool) -> None:
    """What can be refused before anything is read; `force` overrides only that a file of somebody else is there.

    Raises UsageError for a name that says no format, OutputError for the rest.
    """
    # A path folds the two slashes of a URL into one.
    if re.match(r"\w+:/", str(target)):
        raise UsageError(f"cannot write to {target}", hint="the output is a local file; copy it afterwards")
    check_format(target)
    parent = target.parent
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise OutputError(f"cannot write into {parent}", hint="name an existing, writable folder with -o")
    if not target.exists():
        return
    if not target.is_file():
        kind = "a folder" if target.is_dir() else "no regular file"
        raise OutputError(f"{target} is {kind}", hint="name a file")
    if any(target.samefile(path) for path in inputs if isinstance(path, Path) and path.exists()):
        raise OutputError(f"{target} is one of the inputs", hint="name another file with -o")
    if not force and not _is_ours(target):
        raise OutputError(f"{target} exists and was not written by dsv4prof merge", hint="--force overwrites it")


def check_same_recording(target: Path, plan: MergePlan, *, force: bool) -> None:
    """Raise OutputError when `target` holds the merge of another recording; any rank in common makes it the same."""
    if force or not target.exists() or not target.name.endswith(JSON):
        return
    new = msgspec.convert(msgspec.to_builtins(merged_metadata(plan)), type=_Header)
    if not {rank.identity for rank in _ranks(target)} & {rank.identity for rank in new.ranks}:
        raise OutputError(f"{target} holds another recording", hint="--force overwrites it; -o names another file")


def _is_ours(target: Path) -> bool:
    try:
        return is_ours(target)
    except InputError:
        return False


def _ranks(target: Path) -> list[_Rank]:
    """The header's ranks, read without the events behind it; none when it is not as we write it."""
    size = _HEAD_BYTES
    while True:
        head = read_head(target, size)
        lines = head.split(b"\n", 2)
        if len(lines) == 3 or (len(head) < size and size > target.stat().st_size):
            break
        size *= 4
    line = next((line for line in lines if line.startswith(_KEY)), b"")
    try:
        return msgspec.json.decode(line[len(_KEY) :].rstrip(b","), type=_Header).ranks
    except msgspec.DecodeError:
        return []
