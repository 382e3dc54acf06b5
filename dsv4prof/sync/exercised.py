"""What a run proved about source: where it waited, and which functions it ran through without waiting.

The change of sglang #29202 was exercised by no test of its pull request; a finding is worth more when a report says
whether anybody ran it. Written by `audit run --export`, read by the audit of source, which needs no torch for it.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from dsv4prof.errors import InputError
from dsv4prof.model.session import CallSite
from dsv4prof.model.syncs import Kind
from dsv4prof.model.trace import MergedTrace
from dsv4prof.sync.context import user_frame

FORMAT = "dsv4prof.syncs/1"


class RanSite(msgspec.Struct, frozen=True, kw_only=True):
    """A line that waited (or did what `kind` says) `count` times in all. `ops` is the operator chain, outermost first.

    `blocked_ns` is host time in all, None where no device was there. `stack` are `file:line function`, innermost first.
    `text` is the line as it was, without its indent.
    """

    file: str
    line: int
    function: str
    code: str
    kind: Kind
    count: int
    form: str = ""
    ops: tuple[str, ...] = ()
    reason: str = ""
    region: str = ""
    blocked_ns: int | None = None
    stack: tuple[str, ...] = ()
    text: str = ""


class RanFunction(msgspec.Struct, frozen=True, kw_only=True):
    """A function that was entered. `line` is that of its def; `lines` are those that ran, where they were recorded."""

    file: str
    function: str
    line: int = 0
    calls: int = 1
    lines: tuple[int, ...] = ()


class Ran(msgspec.Struct, frozen=True, kw_only=True):
    """One run. `gpu` says whether a device was there; without one the syncs were told by shadow tensors.

    `files` are digests of the files as they ran (`run_sources`). `functions` is empty where the run did not note what
    it entered: then nothing is known of what did not wait.
    """

    run: str
    format: str = FORMAT
    command: str = ""
    created: str = ""
    torch: str = ""
    vendor: str = "cuda"
    gpu: bool = False
    sites: tuple[RanSite, ...] = ()
    functions: tuple[RanFunction, ...] = ()
    files: dict[str, str] = {}


def encode_ran(ran: Ran) -> bytes:
    """As JSON, one object, with a newline at its end."""
    return msgspec.json.format(msgspec.json.encode(ran), indent=1) + b"\n"


def read_ran(path: Path) -> Ran:
    """The run of a file. Raises InputError for what is none."""
    try:
        ran = msgspec.json.decode(path.read_bytes(), type=Ran)
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}", hint="name a file of --export") from error
    except msgspec.DecodeError as error:
        raise InputError(f"{path} is no export of a run: {error}", hint="audit run --export FILE writes one") from error
    if ran.format != FORMAT:
        raise InputError(f"{path} has the unknown format {ran.format!r}", hint="a newer dsv4prof may read it")
    return ran


def ran_of_session(name: str, trace: MergedTrace, sites: Iterable[CallSite]) -> Ran:
    """What a recorded session shows to have run: functions with Python stacks, and those that called operators.

    Where it waited is not told here; the costs of a session are joined by `costs`.
    """
    seen: dict[tuple[str, str], RanFunction] = {}
    for rank in trace.ranks:
        for event in rank.trace.slices:
            frame = user_frame(event.name) if event.category == "python_function" else None
            if frame is not None:
                key = frame.file, frame.function
                known = seen.get(key)
                calls = known.calls + 1 if known is not None else 1
                seen[key] = RanFunction(file=frame.file, function=frame.function, line=frame.def_line, calls=calls)
    for site in sites:
        key = site.file, site.function
        seen.setdefault(key, RanFunction(file=site.file, function=site.function, calls=site.calls))
    return Ran(run=name, gpu=True, functions=tuple(seen.values()))
