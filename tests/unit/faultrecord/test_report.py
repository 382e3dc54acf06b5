"""The report with little to go by: a log alone, a log of another rank, a record of a process that still runs."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

import pytest

from dsv4prof.api.fault_record import fault_show
from dsv4prof.api.fault_running import is_running
from dsv4prof.errors import InputError, UsageError
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


ABORTED = f"""{FAULT}
Fatal Python error: Aborted

Thread 0x00007f0b3d7fe640 (most recent call first):
  File "/srv/metadata.py", line 88 in build
  File "/srv/scheduler.py", line 2011 in loop

Current thread 0x00007f0b3d7fe641 (most recent call first):
  File "/usr/lib/torch/_ops.py", line 9 in __call__
  File "/srv/draft.py", line 31 in verify
  File "/srv/scheduler.py", line 7 in main

Extension modules: numpy
Traceback (most recent call last):
  File "/srv/other.py", line 5, in later
"""


@pytest.mark.parametrize("before", ["", "[rank2]: ", "(EngineCore pid=12) "])
def test_a_log_alone_tells_address_line_and_where_python_was(tmp_path: Path, before: str) -> None:
    log = tmp_path / "server.log"
    log.write_text("hello\n" + "".join(f"{before}{line}\n" for line in ABORTED.splitlines()))
    report = fault_show(str(log))
    finding = report.findings[0]
    assert "address 0x7f0000002000 (exact to a page)" in finding.message
    assert "Python was in verify, draft.py:31" in finding.message
    assert str(finding.location) == "server.log:2"
    (stacks,) = [section for section in report.sections if section.key == "stacks"]
    assert {row["place"] for row in stacks.rows} == {"build, metadata.py:88", "verify, draft.py:31"}
    assert report.data["log_stacks"][0]["stacks"][1]["frames"][-1]["function"] == "main", "a later traceback is none"
    assert [row["rank"] for row in stacks.rows] == [2 if "rank2" in before else None] * 2
    assert len({finding.message, report.verdict.summary, report.checks[0].message}) == 3, "nothing is said twice"


def test_dumps_of_two_ranks_that_lie_between_each_other(tmp_path: Path) -> None:
    ours = ['File "/srv/a.py", line 1 in one', 'File "/srv/a.py", line 2 in main']
    theirs = ['File "/srv/b.py", line 3 in two', 'File "/srv/b.py", line 4 in main']
    both = [f"[rank{rank}]: {line}" for pair in zip(ours, theirs, strict=True) for rank, line in enumerate(pair)]
    heads = [f"[rank{r}]: {line}" for line in ("Fatal Python error: Aborted", "Thread 0x1 (m):") for r in (0, 1)]
    (tmp_path / "all.log").write_text("\n".join([f"[rank1]: {FAULT}", *heads, *both, "Fatal error"]))
    report = fault_show(str(tmp_path / "all.log"))
    assert "Python was in two, b.py:3" in report.findings[0].message
    assert [each["rank"] for each in report.data["log_stacks"]] == [0, 1]


def test_a_rank_that_ended_well_has_no_suspects(tmp_path: Path) -> None:
    ring(tmp_path, 0).close()
    report = fault_show(str(tmp_path))
    assert report.verdict.exit_code == 0
    assert [section.key for section in report.sections] == ["ranks"]


def test_where_python_was_is_read_from_the_ranks_own_log(tmp_path: Path) -> None:
    ring(tmp_path, 1)
    (tmp_path / "rank1.log").write_text(ABORTED)
    report = fault_show(str(tmp_path))
    assert "Python was in verify, draft.py:31" in report.findings[0].message
    assert report.data["log_stacks"][0]["rank"] == 1


def test_latest_is_the_record_that_was_written_last_with_or_without_a_session(tmp_path: Path) -> None:
    for age, name in enumerate(("audit-b", "audit-a", "audit-c")):
        (tmp_path / name).mkdir()
        ring(tmp_path / name, age)
        os.utime(tmp_path / name / f"rank{age}.faultring", ns=(10**18 - age * 10**9,) * 2)
    (tmp_path / "audit-d").mkdir()
    assert fault_show("latest", root=tmp_path).provenance.session == "audit-b"
    assert fault_show("audit-a", root=tmp_path).provenance.session == "audit-a"
    with pytest.raises(UsageError, match="3 folders"):
        fault_show("audit", root=tmp_path)


@pytest.mark.parametrize("name", ["nothing.log", "logs/nothing", "rank0.faultring"])
def test_a_file_that_is_not_there_is_called_a_file(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match="there is no file or session"):
        fault_show(name, root=tmp_path)


def test_no_session_at_all(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no session 'latest'"):
        fault_show("latest", root=tmp_path)


def test_a_record_of_shadows_says_that_its_addresses_are_of_no_device(tmp_path: Path) -> None:
    ring(tmp_path, 0, shadows=True)
    assert any("shadow tensors" in note for note in fault_show(str(tmp_path)).notes)
