"""Ranks as processes: started together, watched, and ended together, so that nobody waits for a rank that is gone.

The leader imports no torch. When a rank fails, the others get time to notice it in their collective and to save what
they recorded; then they are asked to end, then made to.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

import msgspec

from dsv4prof.errors import UsageError
from dsv4prof.recorder.atomic import write_atomic
from dsv4prof.recorder.sessions import record_of
from dsv4prof.target.control import request_stop
from dsv4prof.target.failures import INTERRUPTED, RankExit, log_path, read_exit
from dsv4prof.target.hangs import HangWatch
from dsv4prof.target.serving import Progress
from dsv4prof.target.spec import SPEC_NAME, RunSpec

LOOPBACK = "127.0.0.1"
_POLL_S = 0.05


@dataclass(frozen=True, kw_only=True)
class Patience:
    """How long the leader waits, seconds: for the others after a failure, to save what they recorded or, while none
    records, only to notice; after asking them to end; and for a saving after Ctrl-C."""

    after_failure: float = 15.0
    before_recording: float = 3.0
    after_request: float = 5.0
    after_interrupt: float = 120.0


@dataclass
class _Interrupts:
    count: int = 0
    handled: int = field(default=0)


def choose_port(port: int) -> int:
    """`port` if it is free on the loopback, any free one for 0. Raises UsageError for a port in use."""
    with socket.socket() as probe:
        # A port whose last connection only lingers is free for a listener.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((LOOPBACK, port))
        except OSError as error:
            raise UsageError(
                f"port {port} on {LOOPBACK} cannot be used: {error.strerror}", hint="name another port, or 0 for any"
            ) from error
        return int(probe.getsockname()[1])


def run_ranks(
    spec: RunSpec, folder: Path, *, port: int, progress: Progress, patience: Patience | None = None
) -> tuple[list[RankExit], bool]:
    """Run every rank of `spec` into the session's folder; how each ended, and whether Ctrl-C or SIGTERM came.

    Returns only when no rank is left. A second Ctrl-C ends them at once.
    """
    write_atomic(folder / SPEC_NAME, msgspec.json.encode(spec))
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    ranks: list[subprocess.Popen[bytes]] = []
    with _counted_interrupts() as interrupts:
        try:
            for rank in range(spec.world):
                ranks.append(_start(spec, folder, rank, port, writing))
            hangs = HangWatch(folder, ranks, timeout_s=spec.fault_watch_timeout_s) if spec.fault_watch else None
            ended = _supervise(ranks, folder, _Listener(reading, progress), interrupts, patience or Patience(), hangs)
        finally:
            for process in ranks:
                if process.poll() is None:
                    process.kill()
                process.wait()
            os.close(reading)
            os.close(writing)
    (folder / SPEC_NAME).unlink(missing_ok=True)
    exits = [
        read_exit(folder, rank, process.returncode, ended_by_leader=rank in ended) for rank, process in enumerate(ranks)
    ]
    return exits, interrupts.count > 0


def _start(spec: RunSpec, folder: Path, rank: int, port: int, writing: int) -> subprocess.Popen[bytes]:
    threads = spec.threads_of_a_rank()
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": os.environ.get("GLOO_SOCKET_IFNAME", "lo")}
    if spec.threads is not None:
        environment["OMP_NUM_THREADS"] = str(threads)
    environment.setdefault("OMP_NUM_THREADS", str(threads))
    arguments = {
        "rank": rank,
        "leader": os.getpid(),
        "progress-fd": writing,
        "threads": int(environment["OMP_NUM_THREADS"]) if environment["OMP_NUM_THREADS"].isdecimal() else threads,
        "folder": folder,
        "init-method": f"tcp://{LOOPBACK}:{port}",
    }
    options = [word for key, value in arguments.items() for word in (f"--{key}", str(value))]
    with log_path(folder, rank).open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "dsv4prof.target.worker", *options],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
            pass_fds=(writing,),
            # A group of its own: a terminal's Ctrl-C reaches the leader only, which ends all ranks after one step.
            start_new_session=True,
        )


def _supervise(
    ranks: list[subprocess.Popen[bytes]],
    folder: Path,
    listener: _Listener,
    interrupts: _Interrupts,
    patience: Patience,
    hangs: HangWatch | None = None,
) -> set[int]:
    """Wait for all; returns the ranks that had to be ended."""
    ended: set[int] = set()
    deadline: float | None = None
    asked = False
    # Every rank is polled each time: a short-circuit would overlook a death behind a living rank.
    while None in (statuses := [process.poll() for process in ranks]):
        listener.read()
        now = time.monotonic()
        if interrupts.count > interrupts.handled:
            if interrupts.handled:
                ended |= _signal_all(ranks, signal.SIGKILL)
            else:
                listener.progress("stopping after this step; once more ends at once")
                request_stop(folder)
                deadline = now + patience.after_interrupt
            interrupts.handled = interrupts.count
        if deadline is None and any(status not in (None, 0, INTERRUPTED) for status in statuses):
            deadline = now + (patience.after_failure if _recording(folder, ranks) else patience.before_recording)
        if hangs is not None and hangs.hangs(now):
            listener.progress("nothing moves any more: stacks written, ending all ranks")
            deadline = now
        if deadline is not None and now > deadline:
            ended |= _signal_all(ranks, signal.SIGKILL if asked else signal.SIGTERM)
            asked, deadline = True, now + patience.after_request
        time.sleep(_POLL_S)
    listener.read()
    return ended


def _recording(folder: Path, ranks: list[subprocess.Popen[bytes]]) -> bool:
    """Whether a rank that lives has something to save."""
    alive = (rank for rank, process in enumerate(ranks) if process.poll() is None)
    return any((record := record_of(folder, rank)) is not None and record.first_step is not None for rank in alive)


def _signal_all(ranks: list[subprocess.Popen[bytes]], number: signal.Signals) -> set[int]:
    alive = {rank for rank, process in enumerate(ranks) if process.poll() is None}
    for rank in alive:
        ranks[rank].send_signal(number)
    return alive


class _Listener:
    """Rank 0's progress, line by line."""

    def __init__(self, descriptor: int, progress: Progress) -> None:
        self.progress = progress
        self._descriptor = descriptor
        self._rest = b""

    def read(self) -> None:
        try:
            data = os.read(self._descriptor, 1 << 16)
        except BlockingIOError:
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self.progress(line.decode("utf-8", "replace"))


@contextmanager
def _counted_interrupts() -> Iterator[_Interrupts]:
    """Ctrl-C, SIGTERM and a closed terminal are counted, not raised: an exception between two lines would leave ranks
    behind.
    """
    interrupts = _Interrupts()
    if threading.current_thread() is not threading.main_thread():
        yield interrupts
        return

    def count(number: int, frame: FrameType | None) -> None:
        interrupts.count += 1

    before = {number: signal.signal(number, count) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    try:
        yield interrupts
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
