"""Logs beside a death or a hang: their text, however long, and the messages in them with the rank that each is of."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from dsv4prof.errors import InputError
from dsv4prof.faultrecord.log_stacks import fatal_stacks
from dsv4prof.faultrecord.message import Message
from dsv4prof.faultrecord.messages import read_messages
from dsv4prof.faultrecord.reader import read_fault_record
from dsv4prof.faultrecord.stacks import ThreadStack

MOST_LOG_BYTES = 256 << 20


def messages_of(logs: Sequence[Path]) -> list[Message]:
    return [message for path in logs for message in read_messages(text_of(path), source=path.name)]


def stacks_of(logs: Sequence[Path]) -> dict[int | None, list[ThreadStack]]:
    """Where Python was when it was aborted, by rank, as the logs tell it."""
    return {rank: stacks for path in logs for rank, stacks in fatal_stacks(text_of(path)).items()}


def with_ranks(messages: Sequence[Message], rings: Sequence[Path]) -> list[Message]:
    """The messages, with a rank where one names only the process and a record is of that process."""
    pids = {record.facts.get("pid"): record.rank for record in map(read_fault_record, rings)} if messages else {}
    return [
        msgspec.structs.replace(each, rank=pids[each.pid])
        if each.rank is None and each.pid is not None and each.pid in pids
        else each
        for each in messages
    ]


def cut_notes(logs: Sequence[Path], *, most: int = MOST_LOG_BYTES) -> list[str]:
    """What is not known of logs that are too long to be read whole."""
    return [
        f"unsure: of {path.name} only the last {most >> 20} MiB were read; its line numbers count from there"
        for path in logs
        if path.is_file() and path.stat().st_size > most
    ]


def text_of(path: Path, *, most: int = MOST_LOG_BYTES) -> str:
    """A log's text; of a very long one its end, where a death is told."""
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            head = file.read(400)
            # Damage can look like a byte order mark; text of two bytes a letter is half zeros.
            wide = head[:2] in (b"\xff\xfe", b"\xfe\xff") and 3 * head.count(0) > len(head)
            file.seek(0 if wide else max(0, size - most))
            return file.read(most).decode("utf-16" if wide else "utf-8", "replace")
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}", hint="give a file") from error
