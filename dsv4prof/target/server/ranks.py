"""A served engine's other ranks: processes that obey rank 0 before every step, and end with it."""

from __future__ import annotations

import argparse
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from dsv4prof.errors import RankFailedError
from dsv4prof.model.session import RankCoordinates
from dsv4prof.recorder.control import ProfilerManager
from dsv4prof.target.engine import place_of
from dsv4prof.target.hooks import ProfilingHooks
from dsv4prof.target.server.engine import load_engine
from dsv4prof.target.server.recording import Hearing, StepFollower
from dsv4prof.target.server.spec import ServeSpec
from dsv4prof.target.worker import die_with

_END_S = 10.0
_LOOK_S = 0.5
_FAILED = 3


class OtherRanks:
    """The processes of all ranks but the first."""

    def __init__(self) -> None:
        self.started: list[subprocess.Popen[bytes]] = []

    def require_alive(self) -> None:
        """Raises RankFailedError when one has ended: nobody would meet the first rank then."""
        for rank, process in enumerate(self.started, 1):
            if (status := process.poll()) is not None:
                raise RankFailedError(f"rank {rank} ended with status {status}", hint="its error is above")

    @contextmanager
    def watched(self, failed: Callable[[str], None]) -> Iterator[None]:
        """Say so soon when one ends within the block: an idle first rank would not notice for a minute, and one that
        waits for a GPU's collective not before that gives up.
        """
        over = threading.Event()

        def watch() -> None:
            while not over.wait(_LOOK_S):
                try:
                    self.require_alive()
                except RankFailedError as error:
                    failed(error.message)
                    return

        watcher = threading.Thread(target=watch, name="dsv4prof-ranks", daemon=True)
        if self.started:
            watcher.start()
        try:
            yield
        finally:
            over.set()


@contextmanager
def other_ranks(spec: ServeSpec, init_method: str) -> Iterator[OtherRanks]:
    """All ranks but the first, for the length of the block: told to stop by its end, or ended where it fails."""
    others = OtherRanks()
    try:
        for rank in range(1, spec.engine.world):
            others.started.append(_start(spec, rank, init_method))
        yield others
    except BaseException:
        for process in others.started:
            process.kill()
        raise
    finally:
        for process in others.started:
            try:
                process.wait(_END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _start(spec: ServeSpec, rank: int, init_method: str) -> subprocess.Popen[bytes]:
    # A key is nobody's business on a command line.
    told = msgspec.json.encode(msgspec.structs.replace(spec, api_key=None)).decode()
    command = [
        *(sys.executable, "-m", __name__),
        *("--rank", str(rank)),
        *("--leader", str(os.getpid())),
        *("--init-method", init_method),
        *("--spec", told),
    ]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def main() -> int:
    """One rank's life: load, follow, end."""
    parser = argparse.ArgumentParser(prog=__name__)
    parser.add_argument("--rank", type=int, required=True)
    parser.add_argument("--leader", type=int, required=True)
    parser.add_argument("--init-method", required=True)
    parser.add_argument("--spec", required=True)
    chosen = parser.parse_args()
    die_with(chosen.leader)
    # Rank 0 says when all end; a terminal's Ctrl-C reaches this process too.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    spec = msgspec.json.decode(chosen.spec, type=ServeSpec)
    from dsv4_engine.errors import EngineError

    try:
        follow_rank_zero(spec, chosen.rank, chosen.init_method)
    except EngineError as error:
        print(f"rank {chosen.rank}: {error.message}", file=sys.stderr)
        return _FAILED
    return 0


def follow_rank_zero(spec: ServeSpec, rank: int, init_method: str) -> None:
    from dsv4_engine.server.commands import follow

    run = spec.engine
    me = place_of(run, RankCoordinates(rank=rank, world_size=run.world, host=socket.gethostname()))
    hooks = ProfilingHooks()
    manager = ProfilerManager(name=run.name or Path(run.model).name, root=run.root, plan=spec.plan, coordinates=me)
    loaded = load_engine(run, me, hooks, init_method)
    manager.warm_up()
    follow(
        loaded.engine,
        loaded.channel,
        observer=StepFollower(manager, hooks),
        on_message=Hearing(manager).hear,
    )
    loaded.close()


if __name__ == "__main__":
    sys.exit(main())
