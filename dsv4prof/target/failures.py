"""An error in a rank's process becomes one sentence in the leader's, through a file in the session's folder."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import msgspec

from dsv4prof.errors import (
    Dsv4profError,
    InputError,
    LifetimeError,
    MissingExtraError,
    OutputError,
    RankFailedError,
    UsageError,
)
from dsv4prof.recorder.atomic import write_atomic

_KINDS: dict[str, type[Dsv4profError]] = {
    kind.__name__: kind for kind in (UsageError, InputError, OutputError, LifetimeError)
}
# Where in torch's C++ an error was raised helps nobody who reads one sentence; the log keeps it.
_SOURCE_LINE = re.compile(r"\[/[^\]]*:\d+\]\s*")
# Kineto announces every start and stop on stderr at its highest level; its log level cannot hide them without errors.
_NOISE = ("USDT:",)


class RankFailure(msgspec.Struct, frozen=True):
    """`refused`: the request itself is at fault, every rank would say the same, nothing worth keeping was made."""

    kind: str
    message: str
    hint: str | None
    refused: bool

    def as_error(self) -> Dsv4profError:
        return _KINDS.get(self.kind, Dsv4profError)(self.message, hint=self.hint)


def failure_path(folder: Path, rank: int) -> Path:
    return folder / f".rank{rank}.error.json"


def write_failure(folder: Path, rank: int, error: BaseException) -> None:
    """Leave word of `error` for the leader."""
    message, hint = getattr(error, "message", None), getattr(error, "hint", None)
    failure = RankFailure(
        kind=type(error).__name__,
        message=message or f"{type(error).__name__}: {error}",
        hint=hint,
        refused=isinstance(error, UsageError | InputError | MissingExtraError),
    )
    write_atomic(failure_path(folder, rank), msgspec.json.encode(failure))


class RankExit(msgspec.Struct, frozen=True):
    """How a rank's process ended. `status` is negative for a signal, as subprocess has it.

    `ended_by_leader` says that the leader ended it after another rank had failed or after a second Ctrl-C.
    """

    rank: int
    status: int
    failure: RankFailure | None
    last_line: str | None
    ended_by_leader: bool = False

    @property
    def how(self) -> str:
        """The end as a clause after "rank N"."""
        if self.status < 0:
            name = signal.Signals(-self.status).name
            by = "ended by the leader with" if self.ended_by_leader else "killed by"
            return f"was {by} {name}" + self._said()
        if self.failure is not None:
            return f"failed: {self.failure.message}"
        return f"ended with status {self.status}" + self._said()

    def _said(self) -> str:
        return f" (last line of its log: {self.last_line})" if self.last_line else ""


def read_exit(folder: Path, rank: int, status: int, *, ended_by_leader: bool) -> RankExit:
    """Join a process's status with what it left behind."""
    path = failure_path(folder, rank)
    failure = msgspec.json.decode(path.read_bytes(), type=RankFailure) if path.is_file() else None
    return RankExit(rank, status, failure, last_log_line(log_path(folder, rank)), ended_by_leader)


def log_path(folder: Path, rank: int) -> Path:
    return folder / f"rank{rank}.log"


def last_log_line(path: Path) -> str | None:
    """The last line that says something, for a process that could say nothing else."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except FileNotFoundError:
        return None
    return next((line.strip() for line in reversed(lines) if line.strip() and not line.startswith(_NOISE)), None)


def root_cause(exits: list[RankExit]) -> RankExit | None:
    """The failure that the others follow from: a death comes first, then an error, then what the leader ended.

    Only for a run that nobody interrupted: a rank that says it was interrupted has then been ended by somebody else.
    """
    failed = [item for item in exits if item.status != 0]

    def order(item: RankExit) -> tuple[bool, bool, int]:
        # An engine's own error after its first step, or while joining, is most often the loss of another rank.
        follows = item.failure is not None and item.failure.kind == RankFailedError.__name__
        return item.ended_by_leader, follows, item.rank

    return min(failed, key=order, default=None)


def as_rank_failed(cause: RankExit, reason: str | None, kept: str) -> RankFailedError:
    """The one sentence for the user; `reason` is what the rank's own record says."""
    how = f"was {reason}" if cause.status == INTERRUPTED and reason else cause.how
    return RankFailedError(without_source_line(f"rank {cause.rank} {how}"), hint=kept)


def without_source_line(sentence: str) -> str:
    """A reason for a person, without the place in torch's own sources."""
    return _SOURCE_LINE.sub("", sentence)


INTERRUPTED = 130
FAILED = 3
