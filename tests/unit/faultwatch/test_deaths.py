"""A process that dies in the middle of a step of the real engine leaves who did what to which memory."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the engine extra is not installed")

from dsv4prof.api.fault_record import fault_show
from dsv4prof.faultrecord.addresses import place_address
from dsv4prof.faultrecord.messages import read_messages
from dsv4prof.faultrecord.reader import read_fault_record
from fault_child import FAULTY, PHASE, die_in_child


@pytest.mark.parametrize(("how", "status"), [("kill", -9), ("segv", -11), ("freed", -6)])
def test_step_phase_and_operator_survive(tmp_path: Path, how: str, status: int) -> None:
    child = die_in_child(tmp_path, how)
    assert child.returncode == status, child.stderr[-2000:]
    record = read_fault_record(tmp_path / "rank0.faultring")
    assert not record.ended
    assert record.torn == 0
    last = record.last
    assert last is not None
    assert last.operator == FAULTY
    assert last.phase == PHASE
    assert last.step > 2
    assert [touch.what for touch in last.touches] == ["table float32[300, 7]", "index int64[3]"]
    assert last.touches[0].nbytes == 300 * 7 * 4


def test_an_address_in_a_freed_buffer_is_mapped_and_the_launch_named(tmp_path: Path) -> None:
    child = die_in_child(tmp_path, "freed")
    log = tmp_path / "rank0.log"
    log.write_text(child.stderr)
    report = fault_show(str(tmp_path / "rank0.faultring"), logs=[log])
    assert report.verdict.exit_code == 1
    finding = report.findings[0]
    assert finding.code == "DSV801"
    assert "freed after launch" in finding.message
    assert "result float32[1048576]" in finding.message
    rank = report.data["ranks"][0]
    assert rank["place"]["relation"] == "inside"
    assert rank["suspects"][0]["name"] == FAULTY
    assert any("AMD_SERIALIZE_KERNEL=3" in note for note in report.notes)
    assert not any("CUDA_LAUNCH_BLOCKING" in note for note in report.notes), "the message is AMD's"


def test_an_address_past_the_end_names_the_buffer_that_the_launch_reads(tmp_path: Path) -> None:
    child = die_in_child(tmp_path, "past")
    record = read_fault_record(tmp_path / "rank0.faultring")
    message = read_messages(child.stderr)[0]
    assert message.address is not None
    place = place_address(record, message.address, page_bytes=message.page_bytes)
    assert place.buffer is not None
    log = tmp_path / "said.log"
    log.write_text(child.stderr)
    report = fault_show(str(tmp_path), logs=[log])
    assert report.data["ranks"][0]["suspects"][0]["name"] == FAULTY


def test_without_a_message_the_record_still_tells_where_it_was(tmp_path: Path) -> None:
    die_in_child(tmp_path, "kill")
    report = fault_show(str(tmp_path))
    assert report.findings[0].code == "DSV805"
    assert FAULTY in report.findings[0].message
    assert f"phase {PHASE}" in report.findings[0].message
    assert any("no message of the device" in note for note in report.notes)
