"""After a death or a hang: read what the ranks left, map the address, name the work in flight, say how to narrow it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from dsv4prof import __version__
from dsv4prof.api.fault_ends import RankEnd
from dsv4prof.api.fault_finding import find_record
from dsv4prof.api.fault_findings import fault_findings
from dsv4prof.api.fault_hanging import NO_SYNCHRONIZE, hang_report
from dsv4prof.api.fault_logs import cut_notes, messages_of, stacks_of, text_of, with_ranks
from dsv4prof.api.fault_running import is_running
from dsv4prof.api.fault_sections import messages_section, ranks_section, stacks_section, suspects_section
from dsv4prof.errors import Dsv4profError, InputError
from dsv4prof.faultrecord.cpu_part import cpu_part
from dsv4prof.faultrecord.diagnosis import diagnose_fault
from dsv4prof.faultrecord.layout import SUFFIX
from dsv4prof.faultrecord.message import Message
from dsv4prof.faultrecord.reader import is_fault_record, read_fault_record
from dsv4prof.faultrecord.stacks import StackFrame, ThreadStack, read_stacks
from dsv4prof.faultrecord.steplog import read_step_log
from dsv4prof.model.finding import Finding, Severity
from dsv4prof.model.report import Check, Provenance, Report, Verdict
from dsv4prof.recorder.atomic import write_atomic
from dsv4prof.recorder.sessions import open_session
from dsv4prof.sync.runtime.faultwatch.watchdog import STACKS_SUFFIX
from dsv4prof.target.hangs import HangNote, read_hang


def fault_show(target: str, *, logs: Sequence[Path] = (), root: Path = Path("traces/local")) -> Report:
    """What is known of a death: `target` is a session, a folder of rings, one ring, a log, or a log of steps.

    The verdict is 1 when a rank died or hung, 0 when nobody did. Raises InputError for what cannot be read.
    """
    path = find_record(target, root)
    if path.is_file() and (path.suffix == SUFFIX or is_fault_record(path)):
        said = with_ranks(messages_of(logs), [path])
        end = _end(path, said)
        return _report([end, *_unrecorded([end], said)], logs, [str(path)], None)
    if path.is_file():
        text = text_of(path)
        steps = read_step_log(text) if text.lstrip().startswith(("{", "[{")) else None
        if steps is not None:
            return hang_report(path, steps, logs)
        return _report([], [path, *logs], [str(path)], None)
    return fault_session(path, logs=logs)


def fault_session(folder: Path, *, logs: Sequence[Path] = (), failure: str = "") -> Report:
    """The same for a folder with rings; `failure` is what whoever ran the session says of its end."""
    rings = sorted(folder.glob(f"*{SUFFIX}"), key=lambda path: (len(path.name), path.name))
    own = [path for path in sorted(folder.glob("*.log")) if path not in logs]
    if not rings and not own and not logs:
        below = sorted({each.parent.name for each in folder.glob(f"*/*{SUFFIX}")})
        hint = f"name one of its sessions: {', '.join(below[-5:])}" if below else "run with --fault-watch to have one"
        raise InputError(f"{folder} has no fault record and no log", hint=hint)
    rings, damaged = _readable(rings)
    reasons = _reasons(folder)
    others = with_ranks(messages_of(logs), rings)
    hang = read_hang(folder)
    ends = []
    logged: dict[int | None, list[ThreadStack]] = {}
    for path in rings:
        name = path.name.removesuffix(SUFFIX)
        mine = folder / f"{name}.log"
        said = messages_of([mine]) if mine.is_file() else []
        ends.append(_end(path, [*said, *others], reasons, hang=hang is not None))
        for stacks in stacks_of([mine]).values() if mine.is_file() else ():
            logged[ends[-1].rank] = stacks
    ends += _unrecorded(ends, others)
    loose = own if not rings else []
    return _report(
        ends, [*loose, *logs], [str(folder)], hang, failure=failure, session=folder.name, damaged=damaged, logged=logged
    )


def _readable(rings: Sequence[Path]) -> tuple[list[Path], list[str]]:
    """The records that can be read, and what is wrong with the others; of one alone that is an error."""
    good: list[Path] = []
    damaged: list[str] = []
    for path in rings:
        try:
            read_fault_record(path)
        except InputError as error:
            if len(rings) == 1:
                raise
            damaged.append(error.message)
        else:
            good.append(path)
    return good, damaged


def save_cpu_parts(folder: Path) -> list[Path]:
    """Make a trace of the CPU part of every record in the folder whose rank has saved no trace of its own."""
    saved = []
    for ring in _readable(sorted(folder.glob(f"*{SUFFIX}")))[0]:
        name = ring.name.removesuffix(SUFFIX)
        path = folder / f"{name}.cpu-part.json"
        # Not rank10's, for rank1.
        traced = re.compile(rf"{re.escape(name)}(?!\d).*\.trace\.json")
        if not any(traced.match(each.name) for each in folder.iterdir()):
            write_atomic(path, cpu_part(read_fault_record(ring)))
            saved.append(path)
    return saved


def _end(
    path: Path, messages: Sequence[Message], reasons: dict[int, str] | None = None, *, hang: bool = False
) -> RankEnd:
    """What one ring tells, with the messages that may be about it."""
    record = read_fault_record(path)
    rank = record.rank
    mine = [each for each in messages if each.rank in (None, rank)]
    stacks_path = path.with_name(path.name.removesuffix(SUFFIX) + STACKS_SUFFIX)
    stacks = read_stacks(text_of(stacks_path)) if stacks_path.is_file() else []
    return RankEnd(
        rank=rank,
        diagnosis=diagnose_fault(record, mine, hang=hang or bool(stacks)),
        stacks=stacks,
        running=is_running(record.facts),
        reason=(reasons or {}).get(rank if rank is not None else -1, ""),
    )


def _unrecorded(ends: Sequence[RankEnd], messages: Sequence[Message]) -> list[RankEnd]:
    """Ranks that the logs speak of and that left no record here; what is told of them is of no other rank's memory."""
    known = {end.rank for end in ends}
    faults = [each for each in messages if each.rank is not None and each.rank not in known]
    ranks = sorted({each.rank for each in faults if each.rank is not None and each.role != "consequence"})
    return [
        RankEnd(
            rank=rank,
            diagnosis=diagnose_fault(None, [each for each in faults if each.rank == rank]),
            stacks=[],
            reason="no fault record",
        )
        for rank in ranks
    ]


def _report(
    ends: Sequence[RankEnd],
    logs: Sequence[Path],
    inputs: list[str],
    hang: HangNote | None,
    *,
    failure: str = "",
    session: str | None = None,
    damaged: Sequence[str] = (),
    logged: Mapping[int | None, list[ThreadStack]] | None = None,
) -> Report:
    messages = messages_of(logs)
    if not ends:
        found = diagnose_fault(None, messages)
        rank = found.message.rank if found.message is not None else None
        ends = [RankEnd(rank=rank, diagnosis=found, stacks=[], reason="")]
    first = _first(ends, hang)
    logged = {**(logged or {}), **stacks_of(logs)}
    findings = fault_findings(first, ends, hang, python=_python_place(first, ends, logged))
    died = bool(failure) or any(finding.severity is Severity.ERROR for finding in findings)
    told = [message for end in ends for message in end.diagnosis.messages]
    sections = [ranks_section(ends)] if any(end.diagnosis.record for end in ends) else []
    if first.diagnosis.suspects and (hang is not None or died) and not _is_well(first):
        sections.append(suspects_section(first))
    if told:
        sections.append(messages_section(list(dict.fromkeys(told))))
    if logged or any(end.stacks for end in ends):
        sections.append(stacks_section(ends, logged, hang=hang is not None or not logged))
    reruns = first.diagnosis.reruns if died else ()
    summary = failure or (_summary(findings[0]) if findings else _fine(ends))
    end_words = _end_words(first, hang) if died else summary
    return Report(
        kind="fault",
        provenance=Provenance(
            command="fault show",
            inputs=[*inputs, *map(str, logs)],
            session=session,
            versions={"dsv4prof": __version__},
        ),
        checks=[Check(key="end", ok=not died, message=end_words)],
        sections=sections,
        findings=findings,
        notes=[
            *first.diagnosis.notes,
            *(f"unsure: {each}" for each in damaged),
            *(f"unsure: {each}" for each in (first.diagnosis.unsure if died else ())),
            *(f"rerun: {each.command}   ({each.tells})" for each in reruns),
            *([NO_SYNCHRONIZE] if hang is not None else []),
            *cut_notes(logs),
        ],
        verdict=Verdict(exit_code=int(died), summary=summary),
        next_command=reruns[0].command if reruns else None,
        data={
            "ranks": [end.facts() for end in ends],
            "first": first.rank,
            "reruns": msgspec.to_builtins(reruns),
            "hang": msgspec.to_builtins(hang),
            "log_stacks": [{"rank": rank, "stacks": msgspec.to_builtins(each)} for rank, each in logged.items()],
        },
    )


def _is_well(end: RankEnd) -> bool:
    """Whether it ended in good order or still runs, and nobody says anything else of it."""
    return (end.ended or end.running) and end.diagnosis.message is None


def _summary(finding: Finding) -> str:
    """What happened without the memory and the work, which the finding tells."""
    if finding.location is None:
        return finding.message
    return f"{finding.message.split('; ')[0]} ({finding.location})"


def _end_words(first: RankEnd, hang: HangNote | None) -> str:
    if hang is not None:
        return f"{first.name} did not move any more"
    message = first.diagnosis.message
    if message is None and first.diagnosis.record is None:
        return "somebody waited for a process that did not answer"
    if message is None and _is_well(first):
        return "a rank was given a value that is not in order"
    return f"{first.name} died" if message is None or message.role == "symptom" else f"{first.name} met a fault"


def _python_place(
    first: RankEnd, ends: Sequence[RankEnd], logged: Mapping[int | None, Sequence[ThreadStack]]
) -> StackFrame | None:
    """Where the first rank was in Python; a log that tells no rank speaks of the only one."""
    stacks = logged.get(first.rank) or (logged.get(None) if len(ends) == 1 else None)
    if not stacks:
        return None
    return next((each for each in stacks if each.current), stacks[-1]).place


def _fine(ends: Sequence[RankEnd]) -> str:
    if any(end.running for end in ends):
        return "no rank has died so far: " + ", ".join(f"{end.name} is running" for end in ends if end.running)
    if any(end.diagnosis.record for end in ends):
        return "no rank died: every record was closed in good order"
    return "the log tells of no fault and no hang"


def _first(ends: Sequence[RankEnd], hang: HangNote | None) -> RankEnd:
    """The rank to look at first: the one with a message of the device, then one that ended by itself, then the rest."""
    stopped = {each.rank for each in hang.ranks if each.state.startswith("stopped")} if hang is not None else set()

    def order(end: RankEnd) -> tuple[bool, ...]:
        message = end.diagnosis.message
        caused = message is not None and message.role == "cause"
        placed = end.diagnosis.place is not None and end.diagnosis.place.buffer is not None
        follows = end.followed or end.ended or end.running
        return not caused, message is None, not placed, end.rank not in stopped, follows, end.lost_another

    return min(ends, key=order)


def _reasons(folder: Path) -> dict[int, str]:
    """What the session's manifest says of each rank's end."""
    try:
        session = open_session(folder)
    except Dsv4profError:
        # A folder of rings needs no manifest: a wrapped program writes none, a killed leader may not have come to it.
        return {}
    return {record.coordinates.rank: record.reason or "" for record in session.ranks}
