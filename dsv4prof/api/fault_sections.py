"""The parts of a fault's report: findings and tables out of diagnoses."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from dsv4prof.faultrecord.addresses import words_of
from dsv4prof.faultrecord.diagnosis import Diagnosis, state_words, step_words
from dsv4prof.faultrecord.hang import Hang, rank_words
from dsv4prof.faultrecord.layout import Cell
from dsv4prof.faultrecord.message import Message
from dsv4prof.faultrecord.metadata import words_of as metadata_words
from dsv4prof.faultrecord.stacks import ThreadStack
from dsv4prof.faultrecord.suspects import Suspect
from dsv4prof.model.finding import Finding, Location, Severity
from dsv4prof.model.report import Cell as ReportCell
from dsv4prof.model.report import Column, Section
from dsv4prof.target.hangs import HangNote

_NO_COST = "not a matter of time: the run ended"
_MOST_TEXT = 240
_PEER = re.compile(r"closed by peer|reset by peer|another rank|lost|remote process", re.IGNORECASE)
_CODES = {"assert": "DSV802", "gpu-hang": "DSV803", "out-of-memory": "DSV805", "host-crash": "DSV805"}


class RankEnd(msgspec.Struct, frozen=True):
    """One rank: its diagnosis, the stacks that it wrote, and what the session says of its end."""

    rank: int | None
    diagnosis: Diagnosis
    stacks: list[ThreadStack]
    reason: str
    running: bool = False

    @property
    def ended(self) -> bool:
        """Whether it closed its record in good order."""
        return self.diagnosis.record is not None and self.diagnosis.record.ended

    @property
    def followed(self) -> bool:
        """Whether somebody else ended it."""
        return "ended by the leader" in self.reason

    @property
    def lost_another(self) -> bool:
        """Whether it ended because another rank was gone."""
        said = self.reason + (self.diagnosis.record.device_error if self.diagnosis.record is not None else "")
        return bool(_PEER.search(said)) or any(each.kind == "peer-lost" for each in self.diagnosis.messages)

    @property
    def name(self) -> str:
        return "a process" if self.rank is None else f"rank {self.rank}"

    def facts(self) -> dict[str, Any]:
        """For machines."""
        found, record = self.diagnosis, self.diagnosis.record
        return {
            "rank": self.rank,
            "ended": self.ended,
            "running": self.running,
            "reason": self.reason,
            "ring": str(record.path) if record is not None else None,
            "state": state_words(record) if record is not None else None,
            "cells": {cell.name.lower(): value for cell, value in record.cells.items()} if record is not None else None,
            "streams": msgspec.to_builtins(record.streams) if record is not None else [],
            "message": msgspec.to_builtins(found.message),
            "place": msgspec.to_builtins(found.place),
            "suspects": [_suspect_facts(each) for each in found.suspects],
            "unsure": list(found.unsure),
            "notes": list(found.notes),
            "stacks": msgspec.to_builtins(self.stacks),
            "torn": record.torn if record is not None else 0,
        }


def fault_findings(first: RankEnd, ends: Sequence[RankEnd], hang: HangNote | None) -> list[Finding]:
    """What happened, most important first."""
    found = [_metadata_finding(note) for end in ends for note in end.diagnosis.notes if note.startswith("metadata:")]
    message = first.diagnosis.message
    if hang is not None:
        return [_hung_finding(first, hang), *found]
    if message is not None:
        return [_message_finding(first, message), *found]
    if first.diagnosis.record is not None and not first.ended and not first.running:
        return [_death_finding(first), *found]
    if first.diagnosis.record is None and first.diagnosis.messages:
        return [_waiting_finding(first.diagnosis.messages)]
    return found


def _waiting_finding(messages: Sequence[Message]) -> Finding:
    """Of logs that hold only what follows from a fault."""
    words = "; ".join(rank_words(messages)) or "look at the logs of the ranks, and at a log of steps"
    return Finding(
        code="DSV803",
        severity=Severity.ERROR,
        message=f"only consequences are told, not the cause: {messages[0].text[:_MOST_TEXT]}; {words}",
        cost_reason=_NO_COST,
        fingerprint=f"DSV803-{messages[0].kind}",
    )


def _message_finding(end: RankEnd, message: Message) -> Finding:
    place, suspect = end.diagnosis.place, end.diagnosis.suspect
    code = _CODES.get(message.kind, "DSV801")
    words = [f"{end.name}: {_kind_words(message)}"]
    if place is not None:
        words.append(words_of(place))
    if suspect is not None:
        words.append(f"most suspect: {_launch_words(end, suspect)}")
    return Finding(
        code=code,
        severity=Severity.ERROR,
        message="; ".join(words),
        location=_location(message),
        evidence={
            "rank": end.rank,
            "message": message.text[:_MOST_TEXT],
            "address": None if message.address is None else hex(message.address),
            "suspects": [_suspect_facts(each) for each in end.diagnosis.suspects[:3]],
        },
        cost_reason=_NO_COST,
        fix=end.diagnosis.reruns[0].command if end.diagnosis.reruns else None,
        fingerprint=f"{code}-{end.rank}-{message.kind}",
    )


def _death_finding(end: RankEnd) -> Finding:
    record = end.diagnosis.record
    assert record is not None, "a death without a message is told by the record"
    words = f"{end.name} died" + (f" ({end.reason})" if end.reason else "") + f": {state_words(record)}"
    return Finding(
        code="DSV805",
        severity=Severity.ERROR,
        message=words,
        evidence={"rank": end.rank, "suspects": [_suspect_facts(each) for each in end.diagnosis.suspects[:3]]},
        cost_reason=_NO_COST,
        fix=end.diagnosis.reruns[0].command if end.diagnosis.reruns else None,
        fingerprint=f"DSV805-{end.rank}",
    )


def _hung_finding(first: RankEnd, hang: HangNote) -> Finding:
    record = first.diagnosis.record
    states = "; ".join(f"rank {each.rank} {each.state}, still for {each.still_s:.1f} s" for each in hang.ranks)
    where = state_words(record) if record is not None else "where it was is not known"
    return Finding(
        code="DSV803",
        severity=Severity.ERROR,
        message=f"hang: nothing moved for {hang.timeout_s:g} s; {first.name} was {where} ({states})",
        evidence={"ranks": msgspec.to_builtins(hang.ranks)},
        cost_reason=_NO_COST,
        fix=first.diagnosis.reruns[0].command if first.diagnosis.reruns else None,
        fingerprint=f"DSV803-{first.rank}",
    )


def _metadata_finding(note: str) -> Finding:
    return Finding(
        code="DSV804",
        severity=Severity.ERROR,
        message=note,
        cost_reason=_NO_COST,
        fix="fill padding slots with a length that the kernels take (0 or 1)",
        fingerprint=f"DSV804-{note}",
    )


def hang_findings(hang: Hang, path: Path) -> list[Finding]:
    """A hang that logs tell of, and what is wrong with the numbers in them."""
    found = []
    if hang.hung and hang.step is not None:
        kernel = f"; kernel {hang.kernel} ran" if hang.kernel else ""
        age = f" for {hang.kernel_s:g} s" if hang.kernel and hang.kernel_s is not None else ""
        since = f" since t={hang.since_s:.2f}" if hang.since_s is not None else ""
        found.append(
            Finding(
                code="DSV803",
                severity=Severity.ERROR,
                message=f"{hang.step.name} hung{since}{kernel}{age}; {hang.suspicion}",
                location=Location(str(path), hang.step.line),
                evidence={"changed": list(hang.changed), "consequences": [each.text for each in hang.consequences]},
                cost_reason=_NO_COST,
                fingerprint=f"DSV803-{hang.step.index}",
            )
        )
    elif hang.causes:
        found.append(
            Finding(
                code=_CODES.get(hang.causes[0].kind, "DSV801"),
                severity=Severity.ERROR,
                message=f"the logs show no hang, and name a fault: {hang.causes[0].text[:_MOST_TEXT]}",
                cost_reason=_NO_COST,
                fix=f"dsv4prof fault show {hang.causes[0].source}" if hang.causes[0].source else None,
                fingerprint=f"fault-{hang.causes[0].kind}",
            )
        )
    told = Counter((bad.field, bad.padding) for bad in hang.earlier_bad)
    earlier = {(bad.field, bad.padding): bad for bad in reversed(hang.earlier_bad)}
    for bad in (*hang.bad, *earlier.values()):
        more = told[bad.field, bad.padding] - 1 if bad in earlier.values() else 0
        further = f" (and {more:,} more such in earlier steps)" if more > 0 else ""
        found.append(
            Finding(
                code="DSV804",
                severity=Severity.ERROR,
                message=f"step {bad.step}: {metadata_words(bad)}{further}",
                location=Location(str(path), bad.line),
                evidence=msgspec.to_builtins(bad),
                cost_reason=_NO_COST,
                fix="fill padding slots with a length that the kernels take (0 or 1)" if bad.padding else None,
                fingerprint=f"DSV804-{bad.step}-{bad.field}-{bad.slot}",
            )
        )
    return found


def ranks_section(ends: Sequence[RankEnd]) -> Section:
    rows: list[dict[str, ReportCell]] = []
    for end in ends:
        record = end.diagnosis.record
        if record is None:
            continue
        rows.append(
            {
                "rank": end.rank,
                "end": "in good order" if end.ended else "running" if end.running else end.reason or "without a word",
                "state": state_words(record),
                "launches": record.cells[Cell.LAST],
                "torn": record.torn,
            }
        )
    columns = [
        Column("rank", "rank", "count"),
        Column("end", "end"),
        Column("launches", "launches", "count"),
        Column("torn", "torn", "count"),
        Column("state", "where it was"),
    ]
    return Section(key="ranks", title="Ranks", columns=columns, rows=rows)


def suspects_section(end: RankEnd) -> Section:
    columns = [
        Column("number", "launch", "count"),
        Column("what", "what"),
        Column("where", "where"),
        Column("memory", "memory"),
        Column("why", "why it is here"),
    ]
    rows: list[dict[str, ReportCell]] = [
        {
            "number": each.launch.number,
            "what": each.launch.name,
            "where": _where(end, each),
            "memory": ", ".join(
                f"{touch.what} at {touch.address:#x}" + (" (written)" if touch.written else "")
                for touch in each.launch.touches[:4]
            ),
            "why": "; ".join(each.evidence) or "not known to be complete",
        }
        for each in end.diagnosis.suspects
    ]
    return Section(
        key="suspects",
        title=f"Launches of {end.name} that may be at fault, most suspect first",
        columns=columns,
        rows=rows,
    )


def messages_section(messages: Sequence[Message]) -> Section:
    columns = [
        Column("role", "role"),
        Column("kind", "kind"),
        Column("rank", "rank", "count"),
        Column("where", "where"),
        Column("times", "times", "count"),
        Column("text", "message"),
    ]
    rows: list[dict[str, ReportCell]] = [
        {
            "role": each.role,
            "kind": each.kind,
            "rank": each.rank,
            "where": f"{each.source}:{each.line}" if each.source else str(each.line),
            "times": each.times,
            "text": each.text[:_MOST_TEXT],
        }
        for each in messages
    ]
    return Section(key="messages", title="Messages", columns=columns, rows=rows)


def stacks_section(ends: Sequence[RankEnd]) -> Section:
    rows: list[dict[str, ReportCell]] = [
        {
            "rank": end.rank,
            "thread": "main" if number == len(end.stacks) - 1 else stack.thread,
            "inner": str(stack.frames[0]),
            "place": str(stack.place),
        }
        for end in ends
        for number, stack in reversed(list(enumerate(end.stacks)))
    ]
    columns = [
        Column("rank", "rank", "count"),
        Column("thread", "thread"),
        Column("inner", "innermost"),
        Column("place", "innermost of the program"),
    ]
    return Section(key="stacks", title="Python stacks while nothing moved", columns=columns, rows=rows)


def _where(end: RankEnd, suspect: Suspect) -> str:
    record = end.diagnosis.record
    return step_words(record, suspect.launch) if record is not None else ""


def _launch_words(end: RankEnd, suspect: Suspect) -> str:
    why = f" ({'; '.join(suspect.evidence)})" if suspect.evidence else ""
    return f"{suspect.launch.name}, launch {suspect.launch.number} in {_where(end, suspect)}{why}"


def _kind_words(message: Message) -> str:
    words = message.kind.replace("-", " ")
    by = f" in {message.kernel}" if message.kernel else ""
    why = f": {message.reason}" if message.reason else ""
    return words + by + why


def _location(message: Message) -> Location | None:
    file, _, line = message.place.rpartition(":")
    return Location(file, int(line), function=message.kernel or None) if file and line.isdigit() else None


def _suspect_facts(suspect: Suspect) -> dict[str, Any]:
    launch = suspect.launch
    return {
        "launch": launch.number,
        "name": launch.name,
        "kind": launch.kind.name.lower(),
        "step": launch.step,
        "phase": launch.phase,
        "span": launch.span,
        "stream": launch.stream,
        "touches": [
            {"address": hex(each.address), "bytes": each.nbytes, "what": each.what, "written": each.written}
            for each in launch.touches
        ],
        "captured": [each.name for each in suspect.inside],
        "evidence": list(suspect.evidence),
    }
