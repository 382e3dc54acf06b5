"""After a death or a hang: read what the ranks left, map the address, name the work in flight, say how to narrow it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from dsv4prof import __version__
from dsv4prof.api.fault_running import is_running
from dsv4prof.api.fault_sections import (
    RankEnd,
    fault_findings,
    hang_findings,
    messages_section,
    ranks_section,
    stacks_section,
    suspects_section,
)
from dsv4prof.api.finding import find_readable
from dsv4prof.errors import Dsv4profError, InputError
from dsv4prof.faultrecord.cpu_part import cpu_part
from dsv4prof.faultrecord.diagnosis import diagnose_fault
from dsv4prof.faultrecord.hang import Hang, diagnose
from dsv4prof.faultrecord.layout import SUFFIX
from dsv4prof.faultrecord.message import Message
from dsv4prof.faultrecord.messages import read_messages
from dsv4prof.faultrecord.reader import is_fault_record, read_fault_record
from dsv4prof.faultrecord.stacks import read_stacks
from dsv4prof.faultrecord.steplog import StepLog, read_step_log
from dsv4prof.model.finding import Severity
from dsv4prof.model.report import Check, Provenance, Report, Verdict
from dsv4prof.recorder.atomic import write_atomic
from dsv4prof.recorder.sessions import open_session
from dsv4prof.sync.runtime.faultwatch.watchdog import STACKS_SUFFIX
from dsv4prof.target.hangs import HangNote, read_hang

_MOST_LOG_BYTES = 256 << 20
# A step takes far more memory than its line.
_MOST_STEP_BYTES = 48 << 20
_MOST_METADATA = 100
_NO_SYNCHRONIZE = (
    "a profiler of the hung process must not be stopped with a device synchronize, which would hang too: dsv4prof "
    "waits a bounded time, ends the process and keeps the CPU part"
)


def fault_show(target: str, *, logs: Sequence[Path] = (), root: Path = Path("traces/local")) -> Report:
    """What is known of a death: `target` is a session, a folder of rings, one ring, a log, or a log of steps.

    The verdict is 1 when a rank died or hung, 0 when nobody did. Raises InputError for what cannot be read.
    """
    path = Path(target)
    if path.is_file() and (path.suffix == SUFFIX or is_fault_record(path)):
        said = _with_ranks(_messages(logs), [path])
        end = _end(path, said)
        return _report([end, *_unrecorded([end], said)], logs, [str(path)], None)
    if path.is_file():
        text = _text(path)
        steps = read_step_log(text) if text.lstrip().startswith(("{", "[{")) else None
        if steps is not None:
            return _hang_report(path, steps, logs)
        return _report([], [path, *logs], [str(path)], None)
    folder = path if path.is_dir() else find_readable(root, target)
    return fault_session(folder, logs=logs)


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
    others = _with_ranks(_messages(logs), rings)
    hang = read_hang(folder)
    ends = []
    for path in rings:
        name = path.name.removesuffix(SUFFIX)
        mine = folder / f"{name}.log"
        said = _messages([mine]) if mine.is_file() else []
        ends.append(_end(path, [*said, *others], reasons, hang=hang is not None))
    ends += _unrecorded(ends, others)
    loose = own if not rings else []
    return _report(ends, [*loose, *logs], [str(folder)], hang, failure=failure, session=folder.name, damaged=damaged)


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


def fault_hang(steps: Path, *, logs: Sequence[Path] = ()) -> Report:
    """Judge a server's log of steps and its other logs: which step hung, on what, after which change.

    Raises InputError for a file without steps.
    """
    log = read_step_log(_text(steps, most=_MOST_STEP_BYTES))
    if log is None:
        raise InputError(
            f"{steps} has no steps", hint='a line a step: {"step": 7, "t": 0.4, "running": 3, "ctx_lens": [..]}'
        )
    return _hang_report(steps, log, logs)


def _hang_report(path: Path, log: StepLog, logs: Sequence[Path]) -> Report:
    messages = _messages(logs)
    hang = diagnose(log, messages)
    findings = hang_findings(hang, path)
    bad = any(finding.severity is not Severity.NOTE for finding in findings)
    notes = [*_cut([path], most=_MOST_STEP_BYTES), *_cut(logs)]
    if hang.hung:
        notes += [hang.suspicion, *hang.ranks, _NO_SYNCHRONIZE]
    return Report(
        kind="hang",
        provenance=Provenance(
            command="fault hang", inputs=[str(path), *map(str, logs)], versions={"dsv4prof": __version__}
        ),
        checks=_hang_checks(hang, log),
        sections=[messages_section(messages)] if messages else [],
        findings=findings,
        notes=notes,
        verdict=Verdict(exit_code=int(bad), summary=_hang_summary(hang)),
        data={"hang": _hang_data(hang)},
    )


def _hang_summary(hang: Hang) -> str:
    if not hang.hung:
        fault = f"; the logs name a fault: {hang.causes[0].text}" if hang.causes else ""
        return f"no hang: {hang.reason}{fault}"
    since = f" since t={hang.since_s:.2f}" if hang.since_s is not None else ""
    kernel = f": kernel {hang.kernel} running" if hang.kernel else ""
    age = f" for {hang.kernel_s:g} s" if hang.kernel and hang.kernel_s is not None else ""
    lasted = f", {hang.seconds:g} s so far" if hang.seconds is not None and not age else ""
    return f"hang at {hang.step.name if hang.step else 'a step'}{since}{kernel}{age}{lasted}"


def _hang_checks(hang: Hang, log: StepLog) -> list[Check]:
    checks = [Check(key="hang", ok=not hang.hung, message=_hang_summary(hang))]
    if hang.hung and hang.previous is not None and hang.step is not None:
        changed = "; ".join(hang.changed) or "nothing that the log shows"
        words = f"changed between {hang.previous.name} and {hang.step.name}: {changed}"
        checks.append(Check(key="changed", ok=None, message=words))
    for message in hang.consequences if hang.hung else ():
        words = f"a consequence, not the cause: {message.text}"
        checks.append(Check(key="consequence", ok=None, message=words))
    for stall in hang.stalls:
        words = f"{stall.seconds:g} s passed after {stall.after.name}, and then the steps went on"
        checks.append(Check(key="stall", ok=None, message=words))
    if log.unreadable:
        checks.append(
            Check(key="lines", ok=None, message=f"lines that are no JSON and were left out: {log.unreadable:,}")
        )
    if not hang.bad and not hang.earlier_bad:
        checks.append(Check(key="metadata", ok=True, message="no length or offset in the log is impossible"))
    return checks


def _hang_data(hang: Hang) -> dict[str, Any]:
    """The facts for machines; what changed before and what was impossible first."""
    return {
        "hung": hang.hung,
        "reason": hang.reason,
        "step": hang.step.index if hang.step else None,
        "since_s": hang.since_s,
        "seconds": hang.seconds,
        "kernel": hang.kernel or None,
        "kernel_s": hang.kernel_s,
        "collective": hang.collective,
        "changed": list(hang.changed),
        "metadata": msgspec.to_builtins([*hang.bad, *hang.earlier_bad][:_MOST_METADATA]),
        "consequences": msgspec.to_builtins(hang.consequences),
        "causes": msgspec.to_builtins(hang.causes),
        "ranks": list(hang.ranks),
        "suspicion": hang.suspicion if hang.hung else None,
    }


def _end(
    path: Path, messages: Sequence[Message], reasons: dict[int, str] | None = None, *, hang: bool = False
) -> RankEnd:
    """What one ring tells, with the messages that may be about it."""
    record = read_fault_record(path)
    rank = record.rank
    mine = [each for each in messages if each.rank in (None, rank)]
    stacks_path = path.with_name(path.name.removesuffix(SUFFIX) + STACKS_SUFFIX)
    stacks = read_stacks(_text(stacks_path)) if stacks_path.is_file() else []
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
) -> Report:
    messages = _messages(logs)
    if not ends:
        ends = [RankEnd(rank=None, diagnosis=diagnose_fault(None, messages), stacks=[], reason="")]
    first = _first(ends, hang)
    findings = fault_findings(first, ends, hang)
    died = bool(failure) or any(finding.severity is Severity.ERROR for finding in findings)
    told = [message for end in ends for message in end.diagnosis.messages]
    sections = [ranks_section(ends)] if any(end.diagnosis.record for end in ends) else []
    if first.diagnosis.suspects:
        sections.append(suspects_section(first))
    if told:
        sections.append(messages_section(list(dict.fromkeys(told))))
    if any(end.stacks for end in ends):
        sections.append(stacks_section(ends))
    reruns = first.diagnosis.reruns if died else ()
    summary = failure or (findings[0].message if findings else _fine(ends))
    return Report(
        kind="fault",
        provenance=Provenance(
            command="fault show",
            inputs=[*inputs, *map(str, logs)],
            session=session,
            versions={"dsv4prof": __version__},
        ),
        checks=[Check(key="end", ok=not died, message=summary)],
        sections=sections,
        findings=findings,
        notes=[
            *first.diagnosis.notes,
            *(f"unsure: {each}" for each in damaged),
            *(f"unsure: {each}" for each in (first.diagnosis.unsure if died else ())),
            *(f"rerun: {each.command}   ({each.tells})" for each in reruns),
            *([_NO_SYNCHRONIZE] if hang is not None else []),
            *_cut(logs),
        ],
        verdict=Verdict(exit_code=int(died), summary=summary),
        next_command=reruns[0].command if reruns else None,
        data={
            "ranks": [end.facts() for end in ends],
            "first": first.rank,
            "reruns": msgspec.to_builtins(reruns),
            "hang": msgspec.to_builtins(hang),
        },
    )


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


def _messages(logs: Sequence[Path]) -> list[Message]:
    return [message for path in logs for message in read_messages(_text(path), source=path.name)]


def _with_ranks(messages: Sequence[Message], rings: Sequence[Path]) -> list[Message]:
    """The messages, with a rank where one names only the process and a record is of that process."""
    pids = {record.facts.get("pid"): record.rank for record in map(read_fault_record, rings)} if messages else {}
    return [
        msgspec.structs.replace(each, rank=pids[each.pid])
        if each.rank is None and each.pid is not None and each.pid in pids
        else each
        for each in messages
    ]


def _cut(logs: Sequence[Path], *, most: int = _MOST_LOG_BYTES) -> list[str]:
    """What is not known of logs that are too long to be read whole."""
    return [
        f"unsure: of {path.name} only the last {most >> 20} MiB were read; its line numbers count from there"
        for path in logs
        if path.is_file() and path.stat().st_size > most
    ]


def _text(path: Path, *, most: int = _MOST_LOG_BYTES) -> str:
    """A log's text; of a very long one its end, where a death is told."""
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            wide = file.read(2) in (b"\xff\xfe", b"\xfe\xff")
            file.seek(0 if wide else max(0, size - most))
            return file.read(most).decode("utf-16" if wide else "utf-8", "replace")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}", hint="give a file") from error
