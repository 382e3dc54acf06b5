"""One rank after a death or a hang: its diagnosis, its stacks, and what the session says of its end."""

from __future__ import annotations

import re
from typing import Any

import msgspec

from dsv4prof.faultrecord.diagnosis import Diagnosis, state_words, step_words
from dsv4prof.faultrecord.stacks import ThreadStack
from dsv4prof.faultrecord.suspects import Suspect

MOST_TEXT = 240
_PEER = re.compile(r"closed by peer|reset by peer|another rank|lost|remote process", re.IGNORECASE)


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
            "suspects": [suspect_facts(each) for each in found.suspects],
            "unsure": list(found.unsure),
            "notes": list(found.notes),
            "stacks": msgspec.to_builtins(self.stacks),
            "torn": record.torn if record is not None else 0,
        }


def where_of(end: RankEnd, suspect: Suspect) -> str:
    record = end.diagnosis.record
    return step_words(record, suspect.launch) if record is not None else ""


def suspect_facts(suspect: Suspect) -> dict[str, Any]:
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
