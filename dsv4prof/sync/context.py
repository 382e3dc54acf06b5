"""Where in the program a slice happened: its operators, the ranges round it, the innermost frame of the user's code."""

from __future__ import annotations

import re
import sys
from pathlib import PurePosixPath

import msgspec

from dsv4prof.model.annotation import parse_annotation, whole_number
from dsv4prof.trace.index import RankIndex
from dsv4prof.trace.vendor import HOST_OP_CATEGORIES, RANGE_CATEGORIES

_FRAME = re.compile(r"^(?P<file>[^<].*?)\((?P<line>\d+)\): (?P<function>.+)$")
_VARIABLE = re.compile(r"[ (#].*$")
_PYTHON = "python_function"


class Frame(msgspec.Struct, frozen=True):
    """A Python function of the user's. `def_line` is where it is defined, not where it calls: torch records no more."""

    file: str
    def_line: int
    function: str


class Context(msgspec.Struct, frozen=True):
    """`ops` outermost first, without repeats; `call` is the position of the outermost of them.

    `region` is the innermost named range: a span, else a phase, else any annotation without its numbers.
    """

    ops: tuple[str, ...]
    call: int
    spans: tuple[str, ...]
    phase: str | None
    region: str | None
    frame: Frame | None


def context_of(rank: RankIndex, index: int) -> Context:
    """The context of one slice; the slice itself counts as an operator when it is one."""
    ops: list[str] = []
    spans: list[str] = []
    others: list[str] = []
    phase: str | None = None
    frame: Frame | None = None
    call = index
    in_ops = True
    own = [index] if rank.slices[index].category in HOST_OP_CATEGORIES else []
    for place in (*own, *rank.chain(index)):
        event = rank.slices[place]
        if event.category in HOST_OP_CATEGORIES:
            if in_ops:
                call = place
                if not ops or ops[-1] != event.name:
                    ops.append(event.name)
        elif event.category == _PYTHON:
            in_ops = False
            frame = frame or user_frame(event.name)
        elif event.category in RANGE_CATEGORIES:
            in_ops = False
            note = parse_annotation(event.name)
            if note is None:
                others.append(plain_range(event.name))
            elif note.kind == "span":
                spans.append(note.subject)
            elif note.kind == "phase":
                phase = phase or note.subject
    others = [name for name in others if name]
    region = next(iter((*spans, *([phase] if phase else []), *others)), None)
    return Context(tuple(reversed(ops)), call, tuple(spans), phase, region, frame)


def user_frame(name: str) -> Frame | None:
    """The function that a python_function slice names, unless it belongs to torch or the standard library."""
    match = _FRAME.match(name)
    line = whole_number(match["line"]) if match else None
    if match is None or line is None or _is_library(match["file"]):
        return None
    return Frame(match["file"], line, match["function"])


def plain_range(name: str) -> str:
    """An annotation's name without what changes from step to step; empty for step counters."""
    if name.startswith("ProfilerStep#"):
        return ""
    if name.startswith("step["):
        return _VARIABLE.sub("", name[5:].rstrip("]"))
    if name.startswith("execute_"):
        return "execute"
    return name


def _is_library(file: str) -> bool:
    path = PurePosixPath(file)
    if "torch" in path.parts:
        return True
    if path.is_absolute():
        return "/lib/python3" in file and "-packages/" not in file
    return bool(path.parts) and path.parts[0].removesuffix(".py") in sys.stdlib_module_names
