"""The tables of a fault's report: ranks, suspects, messages, stacks."""

from __future__ import annotations

from collections.abc import Sequence

from dsv4prof.api.fault_ends import MOST_TEXT, RankEnd, where_of
from dsv4prof.faultrecord.diagnosis import state_words
from dsv4prof.faultrecord.layout import Cell
from dsv4prof.faultrecord.message import Message
from dsv4prof.model.report import Cell as ReportCell
from dsv4prof.model.report import Column, Section


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
            "where": where_of(end, each),
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
            "text": each.text[:MOST_TEXT],
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
