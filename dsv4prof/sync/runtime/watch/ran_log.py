"""What a watched process leaves behind: lines that are whole one by one, so that a death costs the last moment only.

A site is written in full once; from then on only its counts are, so that a million syncs do not make a million lines.
Nothing here needs torch: the process that asked reads it.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from dsv4prof.model.finding import Finding
from dsv4prof.model.syncs import Layer, SyncEvent

FORMAT = "dsv4prof.watch/1"
STARTED = "started"
PROBLEMS = "problems"


class Head(msgspec.Struct, frozen=True, kw_only=True, tag="process", tag_field="line"):
    """Whose log this is. `rank` from the environment of launchers, None without."""

    format: str = FORMAT
    pid: int
    argv: list[str]
    rank: int | None
    torch: str
    gpu: bool
    vendor: str
    layers: list[Layer]
    device: str = ""


class SiteLine(msgspec.Struct, frozen=True, kw_only=True, tag="site", tag_field="line"):
    """A site, by its first event."""

    id: int
    event: SyncEvent


class CountLine(msgspec.Struct, frozen=True, kw_only=True, tag="count", tag_field="line"):
    """All of a site so far: the last line counts. `counted` leaves out warm-up and what was allowed, `stepped` warm-up
    and what was outside of steps.
    """

    id: int
    calls: int
    times: int
    counted: int
    stepped: int
    blocked_ns: int | None
    layers: list[Layer]
    missing: dict[Layer, int]


class TotalLine(msgspec.Struct, frozen=True, kw_only=True, tag="total", tag_field="line"):
    """All of a process so far: the last line counts. `units` are steps, or outermost regions where there are none."""

    syncs: int
    allowed: int
    warm: int
    units: int
    steps: int
    most: int
    over: int
    violations: list[str]


class FunctionLine(msgspec.Struct, frozen=True, kw_only=True, tag="function", tag_field="line"):
    """A function that was entered: once when it is, and again at the end with the lines of it that ran."""

    file: str
    function: str
    def_line: int
    lines: tuple[int, ...] = ()


class FindingLine(msgspec.Struct, frozen=True, kw_only=True, tag="finding", tag_field="line"):
    """Something that is no sync, such as a hazard."""

    finding: Finding


class NoteLine(msgspec.Struct, frozen=True, kw_only=True, tag="note", tag_field="line"):
    """Something the reader should be told."""

    text: str


class EndLine(msgspec.Struct, frozen=True, kw_only=True, tag="end", tag_field="line"):
    """The process said good-bye."""


Line = Head | SiteLine | CountLine | TotalLine | FunctionLine | FindingLine | NoteLine | EndLine
_DECODER = msgspec.json.Decoder(Line)


class ProcessLog(msgspec.Struct, kw_only=True):
    """One process, as far as it was written."""

    head: Head
    sites: dict[int, SyncEvent] = {}
    counts: dict[int, CountLine] = {}
    total: TotalLine | None = None
    functions: dict[tuple[str, str, int], FunctionLine] = {}
    findings: list[Finding] = []
    notes: list[str] = []
    ended: bool = False


def read_log(path: Path) -> ProcessLog | None:
    """A process's log without lines that are cut; None where not even its head is whole."""
    log: ProcessLog | None = None
    for text in path.read_bytes().split(b"\n"):
        try:
            line = _DECODER.decode(text)
        except msgspec.DecodeError:
            continue
        if log is None:
            if isinstance(line, Head):
                log = ProcessLog(head=line)
            continue
        _add(log, line)
    return log


def _add(log: ProcessLog, line: Line) -> None:
    match line:
        case SiteLine():
            log.sites[line.id] = line.event
        case CountLine():
            log.counts[line.id] = line
        case TotalLine():
            log.total = line
        case FunctionLine():
            log.functions[line.file, line.function, line.def_line] = line
        case FindingLine():
            log.findings.append(line.finding)
        case NoteLine():
            log.notes.append(line.text)
        case EndLine():
            log.ended = True


class Folder(msgspec.Struct, frozen=True, kw_only=True):
    """All processes of one watched command. `started` counts those with Python, with or without torch."""

    logs: list[ProcessLog]
    started: int
    problems: list[str]


def read_folder(folder: Path) -> Folder:
    """Everything that the processes of a command wrote, in order of rank and process."""
    read = [read_log(path) for path in sorted(folder.glob("*.jsonl"))]
    logs = [log for log in read if log is not None]
    logs.sort(key=lambda log: (log.head.rank is None, log.head.rank or 0, log.head.pid))
    return Folder(
        logs=logs,
        started=len(_lines(folder / STARTED)),
        problems=list(dict.fromkeys(_lines(folder / PROBLEMS))),
    )


def _lines(path: Path) -> list[str]:
    try:
        return [line for line in path.read_text(errors="replace").splitlines() if line]
    except FileNotFoundError:
        return []
