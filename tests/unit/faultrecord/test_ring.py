"""The ring: what was written is read, what was torn is left out, the last ones stay."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsv4prof.errors import InputError, OutputError
from dsv4prof.faultrecord import layout
from dsv4prof.faultrecord.layout import BUFFER, HEADER, LAUNCH, Cell, Kind
from dsv4prof.faultrecord.reader import is_fault_record, read_fault_record, read_progress
from dsv4prof.faultrecord.ring import RingWriter


def small(path: Path, **more: int) -> RingWriter:
    sizes = {"launches": 16, "captured": 4, "buffers": 4, "names_bytes": 4096, **more}
    return RingWriter(path, facts={"rank": 3, "argv": ["dsv4prof", "run"]}, **sizes)


def test_a_record_comes_back_as_it_was_written(tmp_path: Path) -> None:
    ring = small(tmp_path / "r")
    op, phase, what = ring.name("aten::gather"), ring.name("draft"), ring.name("index int64[4]")
    touches = (0x7F00_0000_0000, 64, what, layout.WRITTEN)
    number = ring.launch(Kind.OPERATOR, step=-2, phase=phase, operator=op, stream=7, thread=9, touches=touches * 10)
    record = read_fault_record(ring.path)
    launch = record.launches[0]
    assert (launch.number, launch.step, launch.phase, launch.operator) == (number, -2, "draft", "aten::gather")
    assert (launch.stream, launch.thread) == (7, 9)
    assert len(launch.touches) == layout.TOUCHES
    assert launch.more == 10 - layout.TOUCHES
    assert launch.touches[0].what == "index int64[4]"
    assert launch.touches[0].written
    assert record.rank == 3
    assert not record.ended


@given(written=st.integers(0, 60))
@settings(max_examples=20, deadline=None)
def test_the_last_ones_stay_in_order(tmp_path_factory: pytest.TempPathFactory, written: int) -> None:
    ring = small(tmp_path_factory.mktemp("ring") / "r")
    for _ in range(written):
        ring.launch(Kind.OPERATOR, step=0)
    numbers = [each.number for each in read_fault_record(ring.path).launches]
    assert numbers == list(range(max(1, written - 15), written + 1))


@given(cut=st.integers(1, LAUNCH.size - 8), slot=st.integers(1, 15))
@settings(max_examples=40, deadline=None)
def test_a_record_that_was_half_written_is_left_out(
    tmp_path_factory: pytest.TempPathFactory, cut: int, slot: int
) -> None:
    ring = small(tmp_path_factory.mktemp("ring") / "r")
    op = ring.name("aten::add")
    for _ in range(16):
        ring.launch(Kind.OPERATOR, step=1, operator=op)
    data = bytearray(ring.path.read_bytes())
    at = len(data) - 16 * LAUNCH.size + slot * LAUNCH.size
    newer = bytearray(data[at : at + LAUNCH.size])
    newer[:8] = (slot + 16).to_bytes(8, "little")
    newer[-8:] = ((slot + 16) ^ layout.TURN).to_bytes(8, "little")
    data[at : at + cut] = newer[:cut]
    ring.path.write_bytes(bytes(data))
    record = read_fault_record(ring.path)
    assert record.torn == 1
    assert slot not in {each.number for each in record.launches}
    assert len(record.launches) == 15


def test_captured_launches_are_kept_apart(tmp_path: Path) -> None:
    ring = small(tmp_path / "r")
    ring.launch(Kind.OPERATOR, step=0, operator=ring.name("aten::mm"), graph=5, captured=True)
    for _ in range(100):
        ring.launch(Kind.OPERATOR, step=0)
    record = read_fault_record(ring.path)
    assert [(each.operator, each.graph) for each in record.captured] == [("aten::mm", 5)]


def test_names_that_have_no_room_are_counted_and_unnamed(tmp_path: Path) -> None:
    ring = small(tmp_path / "r", names_bytes=64)
    names = [ring.name(f"aten::operator{number}") for number in range(20)]
    assert names[0] > 0
    assert names[-1] == 0
    ring.launch(Kind.OPERATOR, step=0, operator=names[-1])
    record = read_fault_record(ring.path)
    assert record.launches[0].operator == ""
    assert record.cells[Cell.NAMES_LOST] == 1


def test_buffers_and_progress(tmp_path: Path) -> None:
    ring = small(tmp_path / "r")
    ring.buffer(2, generation=1, address=4096, nbytes=512, made=3, freed=9, description=ring.name("x"), flags=1)
    ring.progress(77, marked=8, done=4)
    ring.close()
    record = read_fault_record(ring.path)
    buffer = record.buffers[0]
    assert (buffer.address, buffer.end, buffer.made, buffer.freed, buffer.what) == (4096, 4608, 3, 9, "x")
    assert buffer.made_here
    assert record.done == {77: 4}
    assert record.marked == {77: 8}
    assert record.ended
    progress = read_progress(ring.path)
    assert progress is not None
    assert progress[0][Cell.ENDED] == 1
    assert read_progress(tmp_path / "absent") is None


def test_a_long_command_line_does_not_spoil_the_facts(tmp_path: Path) -> None:
    ring = RingWriter(tmp_path / "r", facts={"rank": 1, "argv": ["x" * 9000]}, launches=4, captured=1, buffers=1)
    assert read_fault_record(ring.path).rank == 1


@pytest.mark.parametrize("content", [b"", b"{}", b"\x00" * 20000, layout.MAGIC + b"\x01" * 100])
def test_what_is_no_record_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(InputError, match="no fault record"):
        read_fault_record(tmp_path / "x")
    with pytest.raises(InputError, match="cannot be read"):
        read_fault_record(tmp_path / "absent")


def test_another_version_is_refused_by_its_number(tmp_path: Path) -> None:
    ring = small(tmp_path / "r")
    data = bytearray(ring.path.read_bytes())
    data[8:12] = (99).to_bytes(4, "little")
    ring.path.write_bytes(bytes(data))
    with pytest.raises(InputError, match="version 99"):
        read_fault_record(ring.path)
    assert is_fault_record(ring.path)


def test_a_record_that_was_cut_short_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    ring = small(tmp_path / "r")
    for _ in range(16):
        ring.launch(Kind.OPERATOR, step=0)
    data = ring.path.read_bytes()
    ring.path.write_bytes(data[: -3 * LAUNCH.size - 7])
    record = read_fault_record(ring.path)
    assert 10 <= len(record.launches) < 16
    assert record.torn >= 1


def test_a_place_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot be made"):
        small(tmp_path / "file" / "r")


def test_the_layout_fits_its_pages() -> None:
    assert HEADER.size <= layout.FACTS_AT
    assert layout.stream_at(layout.STREAMS) <= layout.CELLS_AT + layout.CELLS_SIZE
    assert layout.cell_at(max(Cell)) < layout.STREAMS_AT
    assert BUFFER.size % 8 == 0
    assert LAUNCH.size % 8 == 0
    # LAST and PROGRESS_NS are one write.
    assert layout.cell_at(Cell.PROGRESS_NS) == layout.cell_at(Cell.LAST) + 8


def test_a_process_that_is_killed_leaves_what_it_wrote(tmp_path: Path) -> None:
    code = (
        "import os, sys; from pathlib import Path\n"
        "from dsv4prof.faultrecord.ring import RingWriter\n"
        "from dsv4prof.faultrecord.layout import Kind\n"
        "ring = RingWriter(Path(sys.argv[1]), facts={'rank': 0})\n"
        "for _ in range(1000): last = ring.launch(Kind.OPERATOR, step=1, operator=ring.name('aten::add'))\n"
        "os.kill(os.getpid(), 9)\n"
    )
    child = subprocess.run([sys.executable, "-c", code, str(tmp_path / "r")], check=False, env={**os.environ})
    assert child.returncode == -9
    record = read_fault_record(tmp_path / "r")
    assert len(record.launches) == 1000
    assert record.cells[Cell.LAST] == 1000
    assert not record.ended
