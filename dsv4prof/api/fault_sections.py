"""The tables of a fault's report: ranks, suspects, messages, stacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from dsv4prof.api.fault_ends import MOST_TEXT, RankEnd, where_of
from dsv4prof.faultrecord.diagnosis import state_words
from dsv4prof.faultrecord.layout import Cell
from dsv4prof.faultrecord.message import Message
from dsv4prof.faultrecord.stacks import ThreadStack
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


def stacks_section(
    ends: Sequence[RankEnd], logged: Mapping[int | None, Sequence[ThreadStack]], *, hang: bool
) -> Section:
    """The threads of ranks that stood still, and of those whose log tells where Python was aborted."""
    told = [(end.rank, end.stacks) for end in ends if end.stacks] + list(logged.items())
    rows: list[dict[str, ReportCell]] = [
        {
            "rank": rank,
            "thread": "aborted"
            if stack.current and not hang
            else "main"
            if number == len(stacks) - 1
            else stack.thread,
            "inner": str(stack.frames[0]),
            "place": str(stack.place),
        }
        for rank, stacks in told
        for number, stack in reversed(list(enumerate(stacks)))
    ]
    columns = [
        Column("rank", "rank", "count"),
        Column("thread", "thread"),
        Column("inner", "innermost"),
        Column("place", "innermost of the program"),
    ]
    title = "Python stacks while nothing moved" if hang else "Python stacks at the end"
    return Section(key="stacks", title=title, columns=columns, rows=rows)


def _thread(stack: ThreadStack, *, hang: bool, last: bool) -> str:
    if stack.current and not hang:
        return "aborted"
    return "main" if last else stack.thread
