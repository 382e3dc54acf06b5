"""The report with little to go by: a log alone, a log of another rank, a record of a process that still runs."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

import pytest

from dsv4prof.api.fault_record import fault_show
from dsv4prof.api.fault_running import is_running
from dsv4prof.errors import InputError
from dsv4prof.faultrecord.layout import Kind
from dsv4prof.faultrecord.ring import RingWriter

FAULT = "Memory access fault by GPU node-1 (Agent handle: 0x1) on address 0x7f0000002000. Reason: Unknown."


def ring(folder: Path, rank: int, **facts: object) -> RingWriter:
    made = RingWriter(
        folder / f"rank{rank}.faultring", facts={"rank": rank, **facts}, launches=16, captured=1, buffers=4
    )
    made.launch(Kind.STEP, step=5, kernel=made.name("decode"))
    made.launch(Kind.OPERATOR, step=5, operator=made.name("aten::mm"))
    return made


def test_a_log_alone(tmp_path: Path) -> None:
    (tmp_path / "server.log").write_text(f"hello\n{FAULT}\n")
    report = fault_show(str(tmp_path / "server.log"))
    assert report.verdict.exit_code == 1
    assert report.findings[0].code == "DSV801"
    assert any("no fault record" in note for note in report.notes)
    assert any("AMD_SERIALIZE_KERNEL=3" in note for note in report.notes)


def test_a_log_that_tells_of_nothing(tmp_path: Path) -> None:
    (tmp_path / "server.log").write_text("all is well\n")
    report = fault_show(str(tmp_path / "server.log"))
    assert report.verdict.exit_code == 0
    assert "no fault" in report.verdict.summary


def test_a_log_of_timeouts_only_does_not_call_them_the_cause(tmp_path: Path) -> None:
    (tmp_path / "api.log").write_text("t=65.0 ERROR shm_broadcast: no message in 60 s, engine core considered dead\n")
    report = fault_show(str(tmp_path / "api.log"))
    assert report.verdict.exit_code == 1
    assert "only consequences are told, not the cause" in report.findings[0].message


def test_a_log_of_another_rank_is_not_put_on_this_ranks_memory(tmp_path: Path) -> None:
    made = ring(tmp_path, 0)
    made.close()
    (tmp_path / "all.log").write_text(f"[rank3]: {FAULT}\n")
    report = fault_show(str(tmp_path / "rank0.faultring"), logs=[tmp_path / "all.log"])
    assert report.data["first"] == 3
    assert report.findings[0].message.startswith("rank 3: memory fault")
    assert report.data["ranks"][0]["place"] is None


def test_the_rank_whose_memory_it_is_comes_first(tmp_path: Path) -> None:
    for rank in range(2):
        made = ring(tmp_path, rank)
        if rank == 1:
            made.buffer(0, generation=1, address=0x7F0000000000, nbytes=1 << 14, made=1, description=made.name("kv"))
    (tmp_path / "dmesg.txt").write_text(f"{FAULT}\n")
    report = fault_show(str(tmp_path), logs=[tmp_path / "dmesg.txt"])
    assert report.data["first"] == 1
    assert "bytes into kv" in report.findings[0].message


def test_a_record_of_a_running_process_is_no_death(tmp_path: Path) -> None:
    ring(tmp_path, 0, host=socket.gethostname())
    report = fault_show(str(tmp_path))
    assert report.verdict.exit_code == 0
    assert "rank 0 is running" in report.verdict.summary


@pytest.mark.parametrize(("host", "pid", "ago_s"), [("elsewhere", 0, 0), ("", 1 << 22, 0), ("", 0, 1 << 30)])
def test_who_does_not_run(host: str, pid: int, ago_s: int) -> None:
    facts = {
        "host": host or socket.gethostname(),
        "pid": pid or os.getpid(),
        "monotonic_ns": time.monotonic_ns() - ago_s * 10**9,
    }
    assert not is_running(facts)


def test_nothing_to_read_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no fault record and no log"):
        fault_show(str(tmp_path))


def test_damaged_bytes_hide_no_message_and_the_rank_is_told(tmp_path: Path) -> None:
    log = tmp_path / "server.log"
    log.write_bytes(b"\xff\xfe\x00\x80" * 100 + f"\n[rank1]: {FAULT}\n".encode() + b"\x80\xff")
    report = fault_show(str(log))
    assert report.verdict.exit_code == 1
    assert report.findings[0].message.startswith("rank 1: memory fault")
