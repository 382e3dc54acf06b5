"""Loading torch takes seconds, a mistake takes none: one process loads it, and every half is a fork of that one.

Nothing has been profiled in it when it forks, so a half begins as a fresh process would, with torch imported and no
more; verdicts are the same in fresh processes (compared on torch 2.13).
"""

from __future__ import annotations

import gc
import os
import sys
import tempfile
from pathlib import Path

import msgspec

from dsv4prof.recorder.faults import groups
from dsv4prof.recorder.faults.child import USAGE_STATUS, load, load_what_the_first_start_loads, program_of, run

SERVE = "serve"


class Job(msgspec.Struct, frozen=True):
    """One half: `folder` is for what it leaves, `scratch` for its temporary files, `errors` for its stderr."""

    name: str
    half: str
    folder: str
    scratch: str
    errors: str
    patience_s: float


class Answer(msgspec.Struct, frozen=True):
    """How it ended; a `status` of None is a hang."""

    status: int | None
    seconds: float


def serve() -> int:
    """Answer every Job that comes as a line on stdin with an Answer on stdout, until stdin ends.

    Returns in the server and in each of its forks: there it is the exit status of the half.
    """
    answers = os.dup(1)
    # Whatever a library prints belongs to no answer.
    os.dup2(2, 1)
    load()
    load_what_the_first_start_loads()
    import dsv4prof.recorder.control
    import dsv4prof.recorder.standalone  # noqa: F401

    # What was loaded until now is no garbage: a fork that ends need not look through it, which took a second each.
    gc.freeze()
    for line in sys.stdin.buffer:
        job = msgspec.json.decode(line, type=Job)
        pid = os.fork()
        if pid == 0:
            os.close(answers)
            return _become(job)
        try:
            status, seconds = groups.await_end(pid, job.patience_s, asked_by=0)
        except groups.LeftAloneError:
            break
        os.write(answers, msgspec.json.encode(Answer(status, seconds)) + b"\n")
    return 0


def _become(job: Job) -> int:
    """This fork is the half now, with streams, a group and temporary files of its own."""
    os.setsid()
    errors = os.open(job.errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for descriptor, source in ((0, nothing), (1, errors), (2, errors)):
        os.dup2(source, descriptor)
    os.close(errors)
    os.close(nothing)
    os.environ["TMPDIR"], tempfile.tempdir = job.scratch, None
    program = program_of(job.name, job.half)
    return USAGE_STATUS if program is None else run(program, Path(job.folder))
