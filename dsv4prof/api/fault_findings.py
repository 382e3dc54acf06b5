"""What happened, as findings: the most important one first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import msgspec

from dsv4prof.api.fault_ends import MOST_TEXT, RankEnd, suspect_facts, where_of
from dsv4prof.faultrecord.addresses import words_of
from dsv4prof.faultrecord.diagnosis import state_words
from dsv4prof.faultrecord.hang import Hang, rank_words
from dsv4prof.faultrecord.message import Message
from dsv4prof.faultrecord.metadata import words_of as metadata_words
from dsv4prof.faultrecord.stacks import StackFrame
from dsv4prof.faultrecord.suspects import Suspect
from dsv4prof.model.finding import Finding, Location, Severity
from dsv4prof.target.hangs import HangNote

_NO_COST = "not a matter of time: the run ended"
_CODES = {"assert": "DSV802", "gpu-hang": "DSV803", "out-of-memory": "DSV805", "host-crash": "DSV805"}


def fault_findings(
    first: RankEnd, ends: Sequence[RankEnd], hang: HangNote | None, *, python: StackFrame | None = None
) -> list[Finding]:
    """What happened, most important first; `python` is where the first rank was on the host, where a log tells it."""
    found = [_metadata_finding(note) for end in ends for note in end.diagnosis.notes if note.startswith("metadata:")]
    message = first.diagnosis.message
    if hang is not None:
        return [_hung_finding(first, hang), *found]
    if message is not None:
        return [_message_finding(first, message, python), *found]
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
        message=f"only consequences are told, not the cause: {messages[0].text[:MOST_TEXT]}; {words}",
        cost_reason=_NO_COST,
        fingerprint=f"DSV803-{messages[0].kind}",
    )


def _message_finding(end: RankEnd, message: Message, python: StackFrame | None) -> Finding:
    place, suspect = end.diagnosis.place, end.diagnosis.suspect
    code = _CODES.get(message.kind, "DSV801")
    words = [f"{end.name}: {_kind_words(message)}"]
    if place is not None:
        words.append(words_of(place))
    elif message.address is not None:
        exact = " (exact to a page)" if message.page_bytes > 1 else ""
        words.append(f"address {message.address:#x}{exact}")
    if python is not None:
        words.append(f"Python was in {python}")
    if suspect is not None:
        words.append(f"most suspect: {_launch_words(end, suspect)}")
    return Finding(
        code=code,
        severity=Severity.ERROR,
        message="; ".join(words),
        location=_location(message),
        evidence={
            "rank": end.rank,
            "message": message.text[:MOST_TEXT],
            "address": None if message.address is None else hex(message.address),
            "suspects": [suspect_facts(each) for each in end.diagnosis.suspects[:3]],
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
        evidence={"rank": end.rank, "suspects": [suspect_facts(each) for each in end.diagnosis.suspects[:3]]},
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
                message=f"the logs show no hang, and name a fault: {hang.causes[0].text[:MOST_TEXT]}",
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


def _launch_words(end: RankEnd, suspect: Suspect) -> str:
    why = f" ({'; '.join(suspect.evidence)})" if suspect.evidence else ""
    return f"{suspect.launch.name}, launch {suspect.launch.number} in {where_of(end, suspect)}{why}"


def _kind_words(message: Message) -> str:
    words = message.kind.replace("-", " ")
    by = f" in {message.kernel}" if message.kernel else ""
    why = f": {message.reason}" if message.reason else ""
    return words + by + why


def _location(message: Message) -> Location | None:
    file, _, line = message.place.rpartition(":")
    if file and line.isdigit():
        return Location(file, int(line), function=message.kernel or None)
    return Location(message.source, message.line) if message.source else None
