"""One known mistake, as data: its two programs, and what would count as surviving it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

# A program gets an empty folder for its traces. It may end its process, never return, or raise anything.
Program = Callable[[Path], None]

# The exit status of a half that found what it watches alive through weak references, where nothing of it may be.
STILL_ALIVE = 75
# The exit status of a half that has nothing to try here, with the reason on stderr.
NOT_HERE = 77


class Expected(Enum):
    """What dsv4prof has to make of the mistake."""

    # The program ends as if nobody profiled, and its trace is whole.
    TRACE = "whole trace"
    # What was recorded is whole, and the mistake is refused with one sentence.
    TRACE_AND_ERROR = "whole trace and a clear error"
    # There is nothing to save, and one sentence says why.
    ERROR = "clear error"


@dataclass(frozen=True, kw_only=True)
class Fault:
    """`sentence` says what the program does. `endings` are the exit statuses that it would have without a profiler
    (negative: a signal). `traces` is the number of files that have to be there, each with `operators` of its work at
    least; plain torch is asked for `plain_traces` where nothing refuses one of them.

    `patience_s` is how long a half may take, seconds; one that has not ended by then is killed. Plain torch gets less
    of it: what does not hang is over in one or two.
    """

    name: str
    sentence: str
    plain: Program
    ours: Program
    expected: Expected
    endings: tuple[int, ...] = (0,)
    traces: int = 1
    plain_traces: int | None = None
    operators: int = 20
    patience_s: float = 60.0
    plain_patience_s: float = 5.0
