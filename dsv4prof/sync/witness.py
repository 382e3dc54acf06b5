"""Whether anybody ran a piece of source, and what happened: findings and hot functions beside recorded runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Literal

import msgspec

from dsv4prof.sync.exercised import Ran, RanFunction, RanSite

_HAZARD = "DSV2"
_FAMILY = len(_HAZARD)

What = Literal["waited", "hazard", "ran", "entered", "not run", "unknown"]


class Place(msgspec.Struct, frozen=True):
    """A statement of source, or with `code` "" a whole function; lines are its first and last."""

    path: str
    function: str
    line: int
    end_line: int
    code: str = ""


class Witness(msgspec.Struct, frozen=True, kw_only=True):
    """What the given runs say of a place.

    waited: it made the host wait, `count` times. hazard: a run found that hazard there. ran: the line was executed and
    never waited. entered: its function was, and the line is not known to have been. not run: no run entered the
    function. unknown: none noted what it entered.
    """

    what: What
    runs: tuple[str, ...] = ()
    count: int = 0

    @property
    def text(self) -> str:
        """In words, as a report says it."""
        where = ", ".join(self.runs)
        return {
            "waited": f"waited {self.count:,} times in run {where}",
            "hazard": f"found in run {where}, {self.count:,} times",
            "ran": f"ran and did not wait in run {where}",
            "entered": f"exercised in run {where}, not seen to wait",
            "not run": "in no given run",
            "unknown": "not known: no given run noted what it entered",
        }[self.what]


class Witnesses:
    """The runs, by file: a lookup for many places."""

    def __init__(self, runs: Sequence[Ran]) -> None:
        self._runs = runs
        self._sites: dict[str, list[tuple[Ran, RanSite]]] = {}
        self._functions: dict[str, list[tuple[Ran, RanFunction]]] = {}
        for run in runs:
            for site in run.sites:
                self._sites.setdefault(_name(site.file), []).append((run, site))
            for function in run.functions:
                self._functions.setdefault(_name(function.file), []).append((run, function))

    def of(self, place: Place) -> Witness:
        """What the runs say of a place; of a function that it waited when any line of it did."""
        near = [(run, site) for run, site in self._sites.get(_name(place.path), []) if _at(place, site)]
        # A run and the source may call one wait by two codes of a family; the same code is the better match.
        waits = [pair for pair in near if pair[1].kind.waits]
        sites = [pair for pair in waits if pair[1].code == place.code] or waits
        if sites:
            return Witness(what="waited", runs=_names(sites), count=sum(site.count for _, site in sites))
        broken = [pair for pair in near if pair[1].code.startswith(_HAZARD)]
        if place.code and broken:
            return Witness(what="hazard", runs=_names(broken), count=sum(site.count for _, site in broken))
        entered = [(run, each) for run, each in self._functions.get(_name(place.path), []) if _is(place, each)]
        executed = [pair for pair in entered if any(place.line <= line <= place.end_line for line in pair[1].lines)]
        if place.code and executed:
            return Witness(what="ran", runs=_names(executed), count=sum(each.calls for _, each in executed))
        if place.code and near:
            return Witness(what="ran", runs=_names(near), count=sum(site.count for _, site in near))
        if place.code and entered and all(each.lines for _, each in entered):
            return Witness(what="not run")
        if entered:
            return Witness(what="entered", runs=_names(entered), count=sum(each.calls for _, each in entered))
        return Witness(what="not run" if any(run.functions for run in self._runs) else "unknown")

    def not_in(self, places: Sequence[Place]) -> list[tuple[Ran, RanSite]]:
        """Sites of waits and hazards that belong to none of the places, though their file has some or was looked at."""
        by_file: dict[str, list[Place]] = {}
        for place in places:
            by_file.setdefault(_name(place.path), []).append(place)
        return [
            (run, site)
            for name, sites in self._sites.items()
            for run, site in sites
            if not any(_at(place, site) for place in by_file.get(name, []))
        ]


def same_file(relative: str, recorded: str) -> bool:
    """A run has the paths of the machine that ran, an audit those of the checkout: the shorter must end the longer."""
    left, right = PurePosixPath(relative).parts, PurePosixPath(recorded.replace("\\", "/")).parts
    width = min(len(left), len(right))
    return width > 0 and left[-width:] == right[-width:]


def _at(place: Place, site: RanSite) -> bool:
    if not same_file(place.path, site.file) or (place.code and place.code[:_FAMILY] != site.code[:_FAMILY]):
        return False
    return place.line <= site.line <= place.end_line


def _is(place: Place, function: RanFunction) -> bool:
    """Qualified names meet in as many parts as both have: a profiler knows a method by its last one alone."""
    if not same_file(place.path, function.file):
        return False
    left, right = _parts(place.function), _parts(function.function)
    width = min(len(left), len(right))
    return left[-width:] == right[-width:]


def _parts(function: str) -> list[str]:
    return [part for part in function.split(".") if part != "<locals>"]


def _name(path: str) -> str:
    return path.replace("\\", "/").rpartition("/")[2]


def _names(pairs: Sequence[tuple[Ran, object]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(run.run for run, _ in pairs))
