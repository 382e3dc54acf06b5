"""Records as a crash, a full disk or a copy leaves them: what is there is told, what is not is said, nothing breaks."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from dsv4prof.api.fault_record import fault_show, save_cpu_parts
from dsv4prof.errors import InputError
from dsv4prof.faultrecord.layout import NAMES_AT, Kind
from dsv4prof.faultrecord.reader import read_fault_record
from dsv4prof.faultrecord.ring import RingWriter
from dsv4prof.target.hangs import HANG_NAME


def made(path: Path, rank: int = 0) -> bytes:
    ring = RingWriter(path, facts={"rank": rank}, launches=16, captured=2, buffers=4)
    ring.launch(Kind.STEP, step=5, kernel=ring.name("decode"))
    for _ in range(20):
        ring.launch(Kind.OPERATOR, step=5, operator=ring.name("aten::mm"))
    ring.close(ended=False)
    return path.read_bytes()


@pytest.mark.parametrize("size", [0, 1, 8, 64, 4096, NAMES_AT - 1])
def test_a_record_without_its_head_is_an_error_and_not_a_log_without_faults(size: int, tmp_path: Path) -> None:
    path = tmp_path / "rank0.faultring"
    path.write_bytes(made(path)[:size])
    with pytest.raises(InputError, match="no fault record"):
        fault_show(str(path))


def test_a_record_of_zeros_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "rank0.faultring"
    path.write_bytes(bytes(len(made(path))))
    with pytest.raises(InputError, match="no fault record"):
        fault_show(str(path))


def test_a_record_that_was_cut_says_so(tmp_path: Path) -> None:
    path = tmp_path / "rank0.faultring"
    whole = made(path)
    path.write_bytes(whole[:NAMES_AT])
    report = fault_show(str(path))
    assert "21 records were written and none can be read" in report.verdict.summary
    missing = f"{len(whole) - NAMES_AT:,} bytes are missing"
    assert any(missing in note for note in report.notes)


def test_a_damaged_header_is_not_called_another_version(tmp_path: Path) -> None:
    path = tmp_path / "rank0.faultring"
    data = bytearray(made(path))
    data[12:60] = b"\xff" * 48
    path.write_bytes(data)
    with pytest.raises(InputError, match="damaged header"):
        read_fault_record(path)


def test_garbage_anywhere_breaks_nothing(tmp_path: Path) -> None:
    path = tmp_path / "rank0.faultring"
    whole, dice = made(path), random.Random(7)
    for _ in range(60):
        data = bytearray(whole)
        for _ in range(dice.choice([1, 20, 400])):
            data[dice.randrange(8, len(data))] = dice.randrange(256)
        path.write_bytes(data)
        try:
            fault_show(str(path))
        except InputError as error:
            assert error.hint


def test_one_damaged_record_does_not_hide_the_others(tmp_path: Path) -> None:
    made(tmp_path / "rank0.faultring")
    (tmp_path / "rank1.faultring").write_bytes(b"")
    report = fault_show(str(tmp_path))
    assert report.verdict.summary.startswith("rank 0 died")
    assert any("rank1.faultring is no fault record" in note for note in report.notes)
    assert [path.name for path in save_cpu_parts(tmp_path)] == ["rank0.cpu-part.json"]


def test_a_folder_of_sessions_names_them(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        made(tmp_path / name / "rank0.faultring")
    with pytest.raises(InputError) as caught:
        fault_show(str(tmp_path))
    assert caught.value.hint == "name one of its sessions: one, two"


@pytest.mark.parametrize("text", ["{broken", "{}", "[]", ""])
def test_a_damaged_note_of_a_hang_ends_in_a_sentence(text: str, tmp_path: Path) -> None:
    made(tmp_path / "rank0.faultring")
    (tmp_path / HANG_NAME).write_text(text)
    with pytest.raises(InputError, match=r"hang\.json cannot be read"):
        fault_show(str(tmp_path))


def test_a_message_that_names_a_process_is_of_the_rank_whose_record_it_is(tmp_path: Path) -> None:
    made(tmp_path / "rank3.faultring", rank=3)
    pid = read_fault_record(tmp_path / "rank3.faultring").facts["pid"]
    made(tmp_path / "rank0.faultring")
    log = tmp_path / "all.txt"
    log.write_text(f"(Worker pid={pid}) RuntimeError: HIP error: an illegal memory access was encountered\n")
    report = fault_show(str(tmp_path / "rank3.faultring"), logs=[log])
    assert report.findings[0].message.startswith("rank 3: illegal access")
