"""A baseline: the findings that a project lives with, so that only new ones fail.

Entries are fingerprints without line numbers, sorted by place, so that the file changes in version control only where
findings do. Of equal statements in one function the baseline knows how many there were.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from dsv4prof.errors import InputError, OutputError
from dsv4prof.model.finding import SourceFinding

SCHEMA = "dsv4prof.baseline/1"
_HINT = "write it again: dsv4prof audit code PATHS --write-baseline FILE"


class Entry(msgspec.Struct, frozen=True, kw_only=True):
    """One finding that is known. `text` and `level` are for the person who reads the file."""

    path: str
    function: str
    code: str
    text: str
    level: str
    fingerprint: str
    moved: str


class Baseline(msgspec.Struct, frozen=True, kw_only=True):
    """The file. `counts` says how many entries each rule has."""

    schema: str
    tool: str
    counts: dict[str, int]
    entries: list[Entry]


class Comparison(msgspec.Struct, frozen=True):
    """Findings with their `status` (new, unchanged, moved), and what is in the baseline alone."""

    findings: list[SourceFinding]
    gone: list[Entry]


def read_baseline(path: Path) -> Baseline:
    """Raises InputError, in one sentence, for a file that is no whole baseline of this version."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read the baseline {path}: {error.strerror or error}", hint=_HINT) from error
    try:
        raw = msgspec.json.decode(data)
        schema = raw.get("schema") if isinstance(raw, dict) else None
        if schema != SCHEMA:
            said = f"its schema is {schema!r}, not {SCHEMA!r}" if schema else "it is no baseline"
            raise InputError(f"cannot use the baseline {path}: {said}", hint=_HINT)
        baseline = msgspec.convert(raw, Baseline)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise InputError(f"the baseline {path} is damaged: {error}", hint=_HINT) from error
    if baseline.counts != _counts(baseline.entries):
        raise InputError(f"the baseline {path} is damaged: its counts do not match its entries", hint=_HINT)
    return baseline


def make_baseline(findings: Sequence[SourceFinding], tool: str) -> Baseline:
    """What `findings` say of themselves, in an order that only they decide."""
    entries = sorted(
        (
            Entry(
                path=each.path,
                function=each.function,
                code=each.code,
                text=each.text,
                level=each.level,
                fingerprint=each.fingerprint,
                moved=each.moved,
            )
            for each in findings
        ),
        key=lambda entry: (entry.path, entry.function, entry.code, entry.text, entry.fingerprint),
    )
    return Baseline(schema=SCHEMA, tool=tool, counts=_counts(entries), entries=entries)


def check_target(path: Path) -> None:
    """Before the audit: raises OutputError where a baseline may not be written, so that no other file is lost."""
    if not path.parent.is_dir():
        raise OutputError(f"cannot write {path}: there is no folder {path.parent}", hint="make the folder first")
    if path.is_dir():
        raise OutputError(f"cannot write {path}: it is a folder", hint="name a file, such as sync-baseline.json")
    if path.exists() and not path.is_file():
        # A new file in the place of a device or a pipe would take it from everybody.
        raise OutputError(f"cannot write {path}: it is no regular file", hint="name a file, such as sync-baseline.json")
    if path.exists() and path.stat().st_size and b'"dsv4prof.baseline/' not in path.read_bytes()[:4096]:
        raise OutputError(f"{path} exists and is no baseline", hint="name another file, or remove it")


def encode_baseline(baseline: Baseline) -> bytes:
    """The bytes of the file: indented, so that a review shows one finding at a time."""
    return msgspec.json.format(msgspec.json.encode(baseline), indent=1) + b"\n"


def compare(findings: Sequence[SourceFinding], baseline: Baseline) -> Comparison:
    """Match by fingerprint, then what is left by the part that outlives a move: only with an entry gone elsewhere."""
    exact: dict[str, list[Entry]] = defaultdict(list)
    for entry in baseline.entries:
        exact[entry.fingerprint].append(entry)
    status: list[str] = []
    for finding in findings:
        known = exact.get(finding.fingerprint)
        status.append("unchanged" if known else "new")
        if known:
            known.pop()
    gone: dict[str, list[Entry]] = defaultdict(list)
    for entries in exact.values():
        for entry in entries:
            gone[entry.moved].append(entry)
    for place, finding in enumerate(findings):
        if status[place] == "new" and gone.get(finding.moved):
            gone[finding.moved].pop(0)
            status[place] = "moved"
    marked: list[dict[str, Any]] = [{"status": word} for word in status]
    return Comparison(
        [msgspec.structs.replace(each, **change) for each, change in zip(findings, marked, strict=True)],
        [entry for entries in gone.values() for entry in entries],
    )


def _counts(entries: Sequence[Entry]) -> dict[str, int]:
    return dict(sorted(Counter(entry.code for entry in entries).items()))
