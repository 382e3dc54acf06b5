"""A run knows lines by number, and source moves on: is a file the one that ran, and where are its lines?"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from dsv4prof.sync.exercised import Ran, RanSite

Read = Callable[[str], bytes | None]


def digest(data: bytes) -> str:
    """What tells two versions of a file apart, whatever their ends of lines."""
    return hashlib.sha256(data.replace(b"\r\n", b"\n")).hexdigest()[:16]


def with_sources(ran: Ran) -> Ran:
    """The run, with the digest of every file that it names and the text of every line that waited; what cannot be read
    (a string, an archive) has neither.
    """
    data = {name: _read(name) for name in _names(ran)}
    known = {name: each for name, each in data.items() if each is not None}
    lines = {name: _lines(each) for name, each in known.items()}
    return msgspec.structs.replace(
        ran,
        files={name: digest(each) for name, each in known.items()},
        sites=tuple(
            msgspec.structs.replace(site, text=_line(lines.get(site.file, []), site.line)) for site in ran.sites
        ),
    )


def as_of(ran: Ran, read: Read) -> tuple[Ran, list[str]]:
    """The run in the lines of the source as it is now, and sentences about what could not be carried over.

    `read` gives the bytes of a file that the run names, None where it is not looked at. In a file that has changed, a
    wait moves to the one line with its text; where no line or several have it, it is left out, since nothing tells
    which line it would be. Which other lines ran is not known of such a file.
    """
    now = {name: data for name in ran.files if (data := read(name)) is not None}
    changed = {name: _lines(data) for name, data in now.items() if digest(data) != ran.files[name]}
    if not changed:
        return ran, []
    kept = [(site, _moved(site, changed[site.file]) if site.file in changed else site) for site in ran.sites]
    functions = tuple(
        msgspec.structs.replace(each, line=0, lines=()) if each.file in changed else each for each in ran.functions
    )
    sites = tuple(site for _, site in kept if site is not None)
    return msgspec.structs.replace(ran, sites=sites, functions=functions), [
        _words(ran.run, name, [pair for pair in kept if pair[0].file == name]) for name in sorted(changed)
    ]


def _words(run: str, name: str, pairs: Iterable[tuple[RanSite, RanSite | None]]) -> str:
    lost = [str(before.line) for before, after in pairs if after is None]
    out = f"; its waits of line {', '.join(lost)} are left out, because no single line has their text" if lost else ""
    return f"{Path(name).name} has changed since run {run}: waits are found again by their text{out}"


def _moved(site: RanSite, lines: list[str]) -> RanSite | None:
    if not site.text:
        return None
    if lines.count(site.text) != 1:
        return None
    return msgspec.structs.replace(site, line=lines.index(site.text) + 1)


def _names(ran: Ran) -> set[str]:
    return {each.file for each in ran.sites} | {each.file for each in ran.functions}


def _read(name: str) -> bytes | None:
    try:
        return Path(name).read_bytes()
    except (OSError, ValueError):
        return None


def _lines(data: bytes) -> list[str]:
    return [line.strip() for line in data.decode(errors="replace").split("\n")]


def _line(lines: list[str], number: int) -> str:
    return lines[number - 1] if 0 < number <= len(lines) else ""
