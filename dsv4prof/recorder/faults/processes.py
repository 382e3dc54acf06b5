"""More than one process: children of a fork, and ranks that wait for each other."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dsv4prof.recorder.faults.fault import NOT_HERE, Expected, Fault
from dsv4prof.recorder.faults.ours import plan
from dsv4prof.recorder.faults.work import TRACE, profiler, save, work

_RANKS = 2
_SERVES_S = 60.0
# Kineto's own thread has gone to sleep by then; a fork before that may get away.
_PAUSE_S = 0.2


def _fork(child: Callable[[], None]) -> int:
    """Run `child` in a fork that then exits as programs do, and return its status once it has ended."""
    time.sleep(_PAUSE_S)
    pid = os.fork()
    if pid == 0:
        child()
        sys.exit(0)
    return _status_of(pid)


def _status_of(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _profiled(path: Path) -> None:
    with profiler() as one:
        work()
    save(one, path)


def _recorded(folder: Path) -> None:
    from dsv4prof.recorder.standalone import record

    with record(plan(), root=folder):
        work()


def _fork_exits_plain(folder: Path) -> None:
    _profiled(folder / TRACE)
    sys.exit(_fork(lambda: None))


def _fork_exits_ours(folder: Path) -> None:
    _recorded(folder)
    sys.exit(_fork(lambda: None))


def _fork_profiles_plain(folder: Path) -> None:
    _profiled(folder / TRACE)
    sys.exit(_fork(lambda: _profiled(folder / "child-trace.json")))


def _fork_profiles_ours(folder: Path) -> None:
    _recorded(folder)
    sys.exit(_fork(lambda: _recorded(folder)))


def _ranks(folder: Path, one_rank: Callable[[int, Any], None]) -> None:
    """Two ranks of gloo, one of them this process. Its exit status is the other rank's, when its own is 0."""
    import torch.distributed as dist

    if not (dist.is_available() and dist.is_gloo_available()):
        print("this torch has no gloo", file=sys.stderr)
        sys.exit(NOT_HERE)
    pid = os.fork()
    rank = 1 if pid == 0 else 0
    dist.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=_RANKS)
    one_rank(rank, dist)
    if rank == 0:
        sys.exit(_status_of(pid))


def _rank_fails_plain(folder: Path) -> None:
    """Rank 1 cannot save, logs it and goes on serving, as a server's handler does; rank 0 waits in the barrier."""

    def one_rank(rank: int, dist: Any) -> None:
        path = folder / f"rank{rank}-trace.json"
        with profiler() as one:
            work()
        save(one, path)
        if rank == 1:
            try:
                save(one, path)
            except RuntimeError:
                time.sleep(_SERVES_S)
                return
        dist.barrier()

    _ranks(folder, one_rank)


def _rank_fails_ours(folder: Path) -> None:
    """The same server: rank 1's place is taken, so that it cannot save."""
    from dsv4prof.recorder.sessions import create_session

    session = create_session(folder, name="ranks", world_size=_RANKS)

    def one_rank(rank: int, dist: Any) -> None:
        from dsv4prof.model.session import RankCoordinates
        from dsv4prof.recorder.standalone import record

        me = RankCoordinates(rank=rank, world_size=_RANKS)
        with record(plan(), session=session, coordinates=me):
            work()
            if rank == 1:
                (session / "rank1.trace.json.gz").mkdir()

    _ranks(folder, one_rank)


FAULTS = (
    Fault(
        name="fork-exits",
        sentence="fork after profiling, the child exits",
        plain=_fork_exits_plain,
        ours=_fork_exits_ours,
        expected=Expected.TRACE,
    ),
    Fault(
        name="fork-profiles",
        sentence="fork after profiling, the child profiles",
        plain=_fork_profiles_plain,
        ours=_fork_profiles_ours,
        expected=Expected.TRACE_AND_ERROR,
    ),
    Fault(
        name="rank-fails",
        sentence="one rank cannot save, the other waits for it",
        plain=_rank_fails_plain,
        ours=_rank_fails_ours,
        expected=Expected.TRACE_AND_ERROR,
    ),
)
