"""One rank as a process of its own: `python -m dsv4prof.target.worker`, started and watched by target.ranks."""

from __future__ import annotations

import argparse
import ctypes
import os
import signal
import socket
import sys
import traceback
from pathlib import Path

import msgspec

from dsv4prof.model.session import RankCoordinates
from dsv4prof.target.control import StopControl, obey
from dsv4prof.target.engine import place_of, serve_rank
from dsv4prof.target.failures import FAILED, INTERRUPTED, write_failure
from dsv4prof.target.spec import SPEC_NAME, RunSpec

_PR_SET_PDEATHSIG = 1


def main() -> int:
    """Serve one rank; the exit status is 0, 130 when interrupted, 3 with an error file for the leader."""
    parser = argparse.ArgumentParser(prog="dsv4prof.target.worker")
    for name in ("rank", "leader", "progress-fd", "threads"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--init-method", required=True)
    chosen = parser.parse_args()
    die_with(chosen.leader)
    spec = msgspec.json.decode((chosen.folder / SPEC_NAME).read_bytes(), type=RunSpec)
    control = StopControl(chosen.folder, chosen.rank)
    obey(control, signal.SIGTERM)
    # A terminal's Ctrl-C is the leader's business: it ends all ranks after the same step.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        done = serve_rank(
            spec,
            place_of(spec, RankCoordinates(rank=chosen.rank, world_size=spec.world, host=socket.gethostname())),
            chosen.folder,
            init_method=chosen.init_method,
            control=control,
            threads=chosen.threads,
            # All ranks do the same; one of them is enough to follow.
            progress=(lambda event: report(chosen.progress_fd, event)) if chosen.rank == 0 else (lambda event: None),
        )
    except Exception as error:  # noqa: BLE001 - the outermost frame: the log gets the traceback, the leader the sentence
        traceback.print_exc()
        write_failure(chosen.folder, chosen.rank, error)
        return FAILED
    return 0 if done else INTERRUPTED


def die_with(leader: int) -> None:
    """Have the kernel end this process when the leader is gone, however it went; elsewhere than on Linux do without."""
    if sys.platform.startswith("linux"):
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != leader:
        raise SystemExit(f"the leader {leader} is gone")


def report(descriptor: int, event: str) -> None:
    """Tell the leader what begins; a leader that no longer listens is no reason to stop."""
    try:
        os.write(descriptor, event.encode() + b"\n")
    except BrokenPipeError:
        return


if __name__ == "__main__":
    sys.exit(main())
