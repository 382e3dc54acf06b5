"""Which findings a remark in the source allows, and which remarks allow nothing any more."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

import msgspec

from dsv4prof.sync.code.files import decode
from dsv4prof.sync.code.found import Found
from dsv4prof.sync.code.living.comments import Allowance, read_allowances, worth_reading
from dsv4prof.sync.code.living.contexts import allowed_blocks


class Suppressed(msgspec.Struct, frozen=True):
    """A finding and the remark that allows it."""

    found: Found
    by: Allowance


class Idle(msgspec.Struct, frozen=True):
    """A remark of ours that allows nothing, with the sentence that says why: a finding of rule DSV001."""

    path: str
    remark: Allowance
    message: str


class Sorted(msgspec.Struct, frozen=True):
    """What is left to report, what is allowed, and what is wrong with the remarks."""

    kept: list[Found]
    suppressed: list[Suppressed]
    idle: list[Idle]


def sort_out(found: Sequence[Found], paths: Iterable[str], read: Callable[[str], bytes | None]) -> Sorted:
    """Apply the remarks of every file in `paths` (and of those with findings); `read` gives a file's bytes, if any."""
    by_path: dict[str, list[Found]] = defaultdict(list)
    for each in found:
        by_path[each.path].append(each)
    kept: list[Found] = []
    suppressed: list[Suppressed] = []
    idle: list[Idle] = []
    for path in sorted({*paths, *by_path}):
        here = by_path.get(path, [])
        remarks = _remarks(read(path), here)
        left, allowed = _apply(here, remarks)
        kept += left
        suppressed += allowed
        idle += _idle(path, remarks, allowed)
    return Sorted(kept, suppressed, idle)


def _remarks(data: bytes | None, found: list[Found]) -> list[Allowance]:
    """What cannot be read or decoded is the audit's to tell."""
    if data is None or not worth_reading(data, ((each.statement_line, each.statement_end) for each in found)):
        return []
    try:
        text = decode(data)
        return [*read_allowances(text), *allowed_blocks(text)]
    except (SyntaxError, UnicodeDecodeError, LookupError):
        return []


def _apply(found: list[Found], remarks: list[Allowance]) -> tuple[list[Found], list[Suppressed]]:
    """The first remark that covers a finding has it; a remark of ours goes before a blanket noqa."""
    ordered = sorted(remarks, key=lambda remark: not remark.codes)
    kept: list[Found] = []
    suppressed: list[Suppressed] = []
    for each in found:
        by = next((remark for remark in ordered if remark.covers(each.code, each.line)), None)
        if by is None:
            kept.append(each)
        else:
            suppressed.append(Suppressed(each, by))
    return kept, suppressed


def _idle(path: str, remarks: list[Allowance], allowed: list[Suppressed]) -> Iterable[Idle]:
    """Each code of a list has to earn its place."""
    for remark in remarks:
        if remark.fault:
            yield Idle(path, remark, f"`# {_short(remark.text)}` {remark.fault}")
        elif remark.can_be_unused:
            used = {each.found.code for each in allowed if remark.covers(each.found.code, each.found.line)}
            unused = [code for code in remark.codes if not any(_named(remark, code, each) for each in used)]
            if unused:
                which = ", ".join(unused)
                yield Idle(path, remark, f"`# {_short(remark.text)}` allows nothing: no {which} here")


def _named(remark: Allowance, code: str, used: str) -> bool:
    return used.startswith(code) if remark.kind == "noqa" else used == code


def _short(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."
