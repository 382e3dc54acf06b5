"""The log of a run: one JSON object a line, for people and for `plot`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dsv4_engine.errors import EngineError

LOG = "log.jsonl"
Line = Mapping[str, Any]
"""step, tokens, seconds, event (`train` or `held_out/KIND`), and the event's figures."""


def append_line(folder: Path, line: Line) -> None:
    with (folder / LOG).open("a", encoding="utf-8") as log:
        log.write(json.dumps(line) + "\n")


def read_log(path: Path) -> list[Line]:
    """The events of a log; EngineError where it is absent or none. A last line without an end, as a run leaves it that
    is killed while it writes, is passed over.
    """
    try:
        *whole, rest = path.read_text(encoding="utf-8").split("\n")
        if rest and not whole:
            raise ValueError("no line of it ends")
        lines = [json.loads(line) for line in whole]
        if not all(isinstance(line, dict) and isinstance(line.get("event"), str) for line in lines):
            raise ValueError("a line is no event")
    except (OSError, ValueError) as error:
        raise EngineError(f"{path} cannot be read: {error}", hint=f"give the {LOG} of a training folder") from None
    return lines


def take_up_log(folder: Path, step: int) -> None:
    """Before a run goes on from a step: lines of later ones go, since those steps are made again. From step 0 there is
    nothing to go on with, and an earlier log is kept as `log.old.jsonl`. OSError where the folder cannot be written.
    """
    path = folder / LOG
    if not path.exists():
        return
    if step == 0:
        path.replace(folder / "log.old.jsonl")
        return
    known = read_log(path)
    kept = [line for line in known if line.get("step", 0) <= step]
    if len(kept) < len(known) or not path.read_bytes().endswith(b"\n"):
        _rewrite(path, kept)


def _rewrite(path: Path, lines: Sequence[Line]) -> None:
    partial = path.with_name(f"{path.name}.part")
    partial.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    partial.replace(path)
