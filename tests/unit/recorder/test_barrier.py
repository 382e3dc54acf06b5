"""Waiting for other ranks ends: with all of them, with a name and a reason, or with the patience."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dsv4prof.model.session import Outcome, RankCoordinates, RankRecord, WindowRecord
from dsv4prof.recorder import barrier
from dsv4prof.recorder.barrier import BarrierResult, await_ranks, name_ranks
from dsv4prof.recorder.sink import record_path, write_record

HOST = socket.gethostname()


def say(folder: Path, rank: int, outcome: Outcome, *, reason: str | None = None, **more: object) -> None:
    trace = f"rank{rank}.trace.json.gz" if outcome in (Outcome.COMPLETE, Outcome.INCOMPLETE) else None
    more = {"windows": [WindowRecord(trace=trace)], "pid": os.getpid(), **more}
    coordinates = RankCoordinates(rank=rank, host=str(more.pop("host", HOST)))
    record = RankRecord(coordinates=coordinates, outcome=outcome, reason=reason, **more)  # type: ignore[arg-type]
    write_record(folder, record)


def dead_pid() -> int:
    child = subprocess.Popen([sys.executable, "-c", ""])
    child.wait()
    return child.pid


def later(seconds: float, act: Callable[[], object]) -> threading.Timer:
    timer = threading.Timer(seconds, act)
    timer.start()
    return timer


def test_all_that_are_there_are_not_waited_for(tmp_path: Path) -> None:
    say(tmp_path, 0, Outcome.COMPLETE)
    say(tmp_path, 1, Outcome.INCOMPLETE, reason="stopped early")
    say(tmp_path, 2, Outcome.SKIPPED)
    say(tmp_path, 9, Outcome.FAILED, reason="of another launch")
    result = await_ranks(tmp_path, 3, patience_s=30)
    assert result.reported == [0, 1, 2]
    assert result.complete
    assert result.waited_s < 1
    assert result.sentence == "ranks 0-2 saved"


def test_the_rank_that_failed_is_named_with_its_reason(tmp_path: Path) -> None:
    for rank in range(8):
        say(tmp_path, rank, Outcome.COMPLETE)
    say(tmp_path, 3, Outcome.FAILED, reason="disk full.")
    result = await_ranks(tmp_path, 8, patience_s=30)
    assert result.failed == {3: "disk full"}
    assert result.sentence == "rank 3 failed: disk full; ranks 0-2, 4-7 saved"


def test_nothing_saved_is_a_failure_whatever_it_is_called(tmp_path: Path) -> None:
    say(tmp_path, 0, Outcome.INCOMPLETE, reason="the window never opened", windows=[])
    say(tmp_path, 1, Outcome.MISSING, reason="was killed by SIGKILL")
    say(tmp_path, 2, Outcome.INCOMPLETE, windows=[WindowRecord(files={"memory": "rank2.memory.pickle"})])
    result = await_ranks(tmp_path, 3, patience_s=30)
    assert result.failed == {0: "the window never opened", 1: "was killed by SIGKILL"}
    assert result.reported == [2]


def test_a_late_rank_is_waited_for(tmp_path: Path) -> None:
    say(tmp_path, 0, Outcome.COMPLETE)
    say(tmp_path, 1, Outcome.RECORDING)
    later(0.3, lambda: say(tmp_path, 1, Outcome.COMPLETE))
    later(0.5, lambda: say(tmp_path, 2, Outcome.COMPLETE))
    result = await_ranks(tmp_path, 3, patience_s=30)
    assert result.complete
    assert 0.4 < result.waited_s < 3


@pytest.mark.parametrize("patience", [0.0, 0.4])
def test_who_says_nothing_is_missing_after_the_patience(tmp_path: Path, patience: float) -> None:
    say(tmp_path, 0, Outcome.COMPLETE)
    say(tmp_path, 1, Outcome.RECORDING)
    say(tmp_path, 2, Outcome.RECORDING, host="another-host", pid=dead_pid())
    result = await_ranks(tmp_path, 4, patience_s=patience)
    assert result.missing == [1, 2, 3]
    assert patience <= result.waited_s < patience + 0.3
    assert f"ranks 1-3 did not report in {result.waited_s:.1f} s" in result.sentence


def test_a_rank_whose_process_is_gone_is_not_waited_for(tmp_path: Path) -> None:
    say(tmp_path, 0, Outcome.COMPLETE)
    say(tmp_path, 1, Outcome.RECORDING, pid=dead_pid())
    result = await_ranks(tmp_path, 2, patience_s=30)
    assert result.waited_s < 1
    assert result.sentence == "rank 1 failed: its process ended without saving a trace; rank 0 saved"


def test_a_rank_that_is_killed_meanwhile_is_noticed_within_a_second(tmp_path: Path) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    say(tmp_path, 0, Outcome.RECORDING, pid=child.pid)
    # Not waited for: what is left of it is a zombie.
    later(0.3, child.kill)
    result = await_ranks(tmp_path, 1, patience_s=30)
    child.wait()
    assert list(result.failed) == [0]
    assert result.waited_s < 2


def test_a_last_word_that_arrives_with_the_end_of_its_process_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    say(tmp_path, 0, Outcome.RECORDING, pid=dead_pid())
    settled = barrier.settled

    def slow(record: RankRecord, folder: Path) -> RankRecord:
        if record.outcome is Outcome.RECORDING:
            say(tmp_path, 0, Outcome.COMPLETE, pid=record.pid)
        return settled(record, folder)

    monkeypatch.setattr(barrier, "settled", slow)
    assert await_ranks(tmp_path, 1, patience_s=30).reported == [0]


def test_a_record_that_cannot_be_read_is_said_and_one_that_is_mended_counts(tmp_path: Path) -> None:
    record_path(tmp_path, 0).write_bytes(b"{half")
    assert await_ranks(tmp_path, 1, patience_s=0.1).failed == {0: "its record cannot be read"}
    later(0.2, lambda: say(tmp_path, 0, Outcome.COMPLETE))
    assert await_ranks(tmp_path, 1, patience_s=30).complete


def test_a_folder_that_is_removed_ends_the_wait(tmp_path: Path) -> None:
    folder = tmp_path / "session"
    folder.mkdir()
    later(0.2, lambda: shutil.rmtree(folder))
    result = await_ranks(folder, 2, patience_s=30)
    assert result.missing == [0, 1]
    assert result.waited_s < 2


def test_another_point_can_be_waited_for(tmp_path: Path) -> None:
    say(tmp_path, 0, Outcome.RECORDING, windows=[WindowRecord(first_step=4)])
    say(tmp_path, 1, Outcome.FAILED, reason="no profiler")
    result = await_ranks(tmp_path, 2, patience_s=30, reached=lambda record: record.first_step is not None)
    assert (result.reported, result.failed) == ([0], {1: "no profiler"})


def test_a_thousand_ranks_cost_little_and_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = 1024
    for rank in range(world):
        outcome = Outcome.COMPLETE if rank % 2 else Outcome.RECORDING
        text = f'{{"coordinates": {{"rank": {rank}, "host": "h{rank // 8}"}}, "outcome": "{outcome.value}"}}'
        record_path(tmp_path, rank).write_text(text)
    reads = []
    read = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: reads.append(path) or read(path))  # type: ignore[func-returns-value]
    cpu = time.process_time()
    result = await_ranks(tmp_path, world, patience_s=2)
    cpu = time.process_time() - cpu
    assert len(result.missing) == world // 2
    assert len(reads) == world
    assert cpu < 1
    assert result.sentence.startswith("ranks 0, 2, 4")


def test_ranks_are_named_shortly() -> None:
    assert name_ranks([3]) == "rank 3"
    assert name_ranks([7, 0, 1, 2, 4]) == "ranks 0-2, 4, 7"
    assert BarrierResult(failed={2: "x", 0: "x", 1: "y"}).sentence == "ranks 0, 2 failed: x; rank 1 failed: y"
