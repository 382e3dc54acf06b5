"""Findings against lines that a person has judged: how many syncs are found, how many look-alikes are flagged.

A finding and a site meet when the site's line lies in the finding's statement. The file is read after the audit and
changes nothing in it. One site a line of JSON: `file` (relative to the audited root), `line`, `label` ("sync" or
"no_sync"); `reason`, `id`, `kind`, `snippet` and whatever else stands there comes back with a miss or a false finding.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Sequence
from pathlib import Path

import msgspec

from dsv4prof.errors import InputError
from dsv4prof.sync.code.found import Found
from dsv4prof.sync.code.values import LEVELS

_SURE = ("certain", "likely")
_HINT = 'a site a line: {"file": "pkg/mod.py", "line": 7, "label": "sync" or "no_sync", "reason": "..."}'


class Site(msgspec.Struct, frozen=True, kw_only=True):
    """A judged line. `file` is relative to the root with forward slashes."""

    file: str
    line: int
    label: str
    id: str = ""
    reason: str = ""
    kind: str = ""
    conditional: bool = False
    analysis_needed: str = ""
    snippet: str = ""


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """A site that came out wrong. `level` is the surest level found there ("" none), `codes` what was found there."""

    site: Site
    level: str
    codes: list[str] = []
    found_reason: str = ""
    unknown_file: bool = False


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """Rates are of certain and likely; None where no site of the label is there. `by_level` counts sites by the surest
    level found at them: `{"certain": {"sync": 40, "no_sync": 0}, ..., "none": ...}`."""

    sites: int
    syncs: int
    look_alikes: int
    found: int
    flagged: int
    recall: float | None
    false_rate: float | None
    by_level: dict[str, dict[str, int]]
    misses: list[Judged]
    false: list[Judged]
    unknown_files: list[str]


def read_labels(path: Path) -> list[Site]:
    """Raises InputError naming the line that is no site, or the file that cannot be read or is empty."""
    try:
        # Only a newline ends a line of JSON: a text within may hold other separators of Unicode.
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        why = (error.strerror or str(error)) if isinstance(error, OSError) else "it is not UTF-8 text"
        raise InputError(f"cannot read the labels {path}: {why}", hint=_HINT) from error
    sites = [_site(path, number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if not sites:
        raise InputError(f"{path} holds no labelled site", hint=_HINT)
    return sites


def _site(path: Path, number: int, line: str) -> Site:
    try:
        site = msgspec.json.decode(line, type=Site)
    except msgspec.DecodeError as error:
        raise InputError(f"{path}, line {number}: {error}", hint=_HINT) from error
    if site.label not in ("sync", "no_sync"):
        raise InputError(f"{path}, line {number}: the label is {site.label!r}, not sync or no_sync", hint=_HINT)
    if site.line < 1:
        raise InputError(f"{path}, line {number}: line {site.line} is no line of a file", hint=_HINT)
    return msgspec.structs.replace(site, file=site.file.replace("\\", "/").removeprefix("./"))


def judge(found: Sequence[Found], sites: Sequence[Site], known: Collection[str]) -> Outcome:
    """Compare. `known` are the audited files; a site elsewhere counts as one where nothing was found, and is listed."""
    by_path: dict[str, list[Found]] = defaultdict(list)
    for each in found:
        if each.code.startswith("DSV1"):
            by_path[each.path].append(each)
    at = [_at(by_path.get(site.file, []), site.line) for site in sites]
    by_level = {level: {"sync": 0, "no_sync": 0} for level in (*reversed(LEVELS), "none")}
    misses: list[Judged] = []
    false: list[Judged] = []
    for site, here in zip(sites, at, strict=True):
        level = max((each.level for each in here), key=LEVELS.index, default="")
        by_level[level or "none"][site.label] += 1
        if (level in _SURE) != (site.label == "sync"):
            wrong = false if site.label == "no_sync" else misses
            wrong.append(_judged(site, level, here, known))
    syncs = sum(site.label == "sync" for site in sites)
    look_alikes = len(sites) - syncs
    return Outcome(
        sites=len(sites),
        syncs=syncs,
        look_alikes=look_alikes,
        found=syncs - len(misses),
        flagged=len(false),
        recall=(syncs - len(misses)) / syncs if syncs else None,
        false_rate=len(false) / look_alikes if look_alikes else None,
        by_level=by_level,
        misses=misses,
        false=false,
        unknown_files=sorted({site.file for site in sites} - set(known)),
    )


def _at(found: list[Found], line: int) -> list[Found]:
    return [each for each in found if each.statement_line <= line <= each.statement_end]


def _judged(site: Site, level: str, here: list[Found], known: Collection[str]) -> Judged:
    surest = next((each for each in here if each.level == level), None)
    return Judged(
        site=site,
        level=level,
        codes=sorted({each.code for each in here if each.level == level}),
        found_reason=surest.reason if surest else "",
        unknown_file=site.file not in known,
    )
