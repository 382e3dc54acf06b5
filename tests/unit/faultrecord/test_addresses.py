"""An address becomes a buffer, and pending launches become suspects in a sensible order."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsv4prof.faultrecord.addresses import place_address, words_of
from dsv4prof.faultrecord.diagnosis import diagnose_fault
from dsv4prof.faultrecord.layout import HOST, WRITTEN, Cell, Kind
from dsv4prof.faultrecord.messages import read_messages
from dsv4prof.faultrecord.reader import FaultRecord, read_fault_record
from dsv4prof.faultrecord.ring import RingWriter

BASE = 0x7F10_0000_0000
STREAM = 0x55


@pytest.fixture
def ring(tmp_path: Path) -> RingWriter:
    return RingWriter(tmp_path / "r", facts={"rank": 0, "vendor": "amd", "markers_every": 4}, launches=64, buffers=16)


def buffer(ring: RingWriter, slot: int, start: int, size: int, what: str, *, made: int = 1, freed: int = 0) -> None:
    ring.buffer(slot, generation=slot + 1, address=start, nbytes=size, made=made, freed=freed,
                description=ring.name(what), flags=1)  # fmt: skip


def launch(ring: RingWriter, name: str, *touched: tuple[int, int, str], kind: Kind = Kind.OPERATOR, graph: int = 0,
           captured: bool = False, stream: int = STREAM) -> int:  # fmt: skip
    touches = [part for start, size, what in touched for part in (start, size, ring.name(what), WRITTEN)]
    number = ring.launch(kind, step=3, phase=ring.name("draft"), operator=ring.name(name), stream=stream,
                         touches=touches, graph=graph, captured=captured)  # fmt: skip
    ring.returned(number)
    return number


def read(ring: RingWriter) -> FaultRecord:
    return read_fault_record(ring.path)


def test_inside_after_before_and_nowhere(ring: RingWriter) -> None:
    buffer(ring, 0, BASE, 4096, "kv")
    record = read(ring)
    assert place_address(record, BASE + 100).relation == "inside"
    after = place_address(record, BASE + 4096 + 300)
    assert (after.relation, after.offset) == ("after", 300)
    before = place_address(record, BASE - 64)
    assert (before.relation, before.offset) == ("before", 64)
    assert place_address(record, BASE + (1 << 40)).relation == "unknown"
    assert "null" in words_of(place_address(record, 0))


def test_the_end_itself_is_past_the_end(ring: RingWriter) -> None:
    buffer(ring, 0, BASE, 4096, "kv")
    place = place_address(read(ring), BASE + 4096)
    assert (place.relation, place.offset) == ("after", 0)


def test_an_address_exact_to_a_page_meets_any_buffer_in_it(ring: RingWriter) -> None:
    buffer(ring, 0, BASE + 512, 256, "small")
    assert place_address(read(ring), BASE).relation == "before"
    assert place_address(read(ring), BASE, page_bytes=4096).relation == "inside"


def test_a_live_buffer_comes_before_freed_ones_and_the_last_freed_first(ring: RingWriter) -> None:
    buffer(ring, 0, BASE, 4096, "oldest", made=1, freed=5)
    buffer(ring, 1, BASE, 4096, "older", made=6, freed=9)
    assert place_address(read(ring), BASE).buffer.what == "older"
    buffer(ring, 2, BASE, 4096, "alive", made=10)
    place = place_address(read(ring), BASE)
    assert place.buffer is not None
    assert place.buffer.what == "alive"
    assert [each.what for each in place.also] == ["older", "oldest"]


MESSAGE = "Memory access fault by GPU node-1 (Agent handle: 0x1) on address {:#x}. Reason: Unknown."


def test_the_launch_that_touches_the_buffer_comes_first(ring: RingWriter) -> None:
    ring.cell(Cell.TRACKED, 1)
    buffer(ring, 0, BASE, 8192, "table")
    done = launch(ring, "aten::add", (BASE, 8192, "self"))
    ring.progress(STREAM, marked=done + 4, done=done)
    launch(ring, "aten::mul", (BASE + (1 << 33), 64, "x"))
    wanted = launch(ring, "aten::index_select", (BASE, 8192, "self float32[8, 256]"))
    launch(ring, "aten::mul", (BASE + (1 << 33), 64, "x"))
    found = diagnose_fault(read(ring), read_messages(MESSAGE.format(BASE + 8192)))
    assert found.suspect is not None
    assert found.suspect.launch.number == wanted
    assert len(found.suspects) == 3, "what is complete is no suspect"
    assert "past that buffer" in found.suspect.evidence[0]
    assert any("certain is that what came before launch 2 (step 3) was complete" in each for each in found.unsure)


def test_before_the_open_marker_it_is_likelier(ring: RingWriter) -> None:
    ring.cell(Cell.TRACKED, 1)
    ring.progress(STREAM, marked=2, done=0)
    first = launch(ring, "aten::a")
    launch(ring, "aten::b")
    launch(ring, "aten::c")
    found = diagnose_fault(read(ring), [])
    assert found.suspect is not None
    assert found.suspect.launch.number == first
    assert found.suspects[-1].evidence == ()


def test_streams_are_followed_apart(ring: RingWriter) -> None:
    ring.cell(Cell.TRACKED, 1)
    one = launch(ring, "aten::one", stream=1)
    two = launch(ring, "aten::two", stream=2)
    ring.progress(2, marked=two, done=two)
    launch(ring, "aten::host", stream=HOST)
    assert [each.launch.number for each in diagnose_fault(read(ring), []).suspects] == [one]


def test_an_assertion_names_the_operator_that_runs_it(ring: RingWriter) -> None:
    ring.cell(Cell.TRACKED, 1)
    launch(ring, "aten::mm")
    wanted = launch(ring, "aten::embedding", (BASE, 64, "weight"))
    launch(ring, "aten::mm")
    said = "/p/aten/src/ATen/native/cuda/Indexing.cu:1553: indexSelectSmallIndex: block: [0,0,0], thread: [1,0,0] " \
           "Assertion `srcIndex < srcSelectDimSize` failed."  # fmt: skip
    found = diagnose_fault(read(ring), read_messages(said))
    assert found.suspect is not None
    assert found.suspect.launch.number == wanted
    assert "indexSelectSmallIndex" in found.suspect.evidence[0]


def test_what_was_completed_before_is_less_suspect(ring: RingWriter) -> None:
    ring.cell(Cell.TRACKED, 1)
    usual = ((BASE, 64, "table"), (BASE + 512, 64, "index"))
    done = launch(ring, "aten::index_select", *usual)
    ring.progress(STREAM, marked=done, done=done)
    launch(ring, "aten::index_select", *usual)
    wanted = launch(ring, "aten::index_select", (BASE, 64, "table"), (BASE + 1024, 64, "index"))
    said = "/p/Indexing.cu:1: indexSelectSmallIndex: block: [0,0,0], thread: [1,0,0] Assertion `a < b` failed."
    found = diagnose_fault(read(ring), read_messages(said))
    assert found.suspect is not None
    assert found.suspect.launch.number == wanted


def test_a_replay_is_judged_by_what_was_captured_in_it(ring: RingWriter) -> None:
    ring.cell(Cell.TRACKED, 1)
    buffer(ring, 0, BASE, 8192, "kv pool")
    launch(ring, "aten::gather", (BASE, 8192, "kv"), graph=4, captured=True)
    launch(ring, "", kind=Kind.GRAPH, graph=3)
    wanted = launch(ring, "", kind=Kind.GRAPH, graph=4)
    found = diagnose_fault(read(ring), read_messages(MESSAGE.format(BASE + 4096)))
    assert found.suspect is not None
    assert found.suspect.launch.number == wanted
    assert [each.operator for each in found.suspect.inside] == ["aten::gather"]
    assert "captured as aten::gather" in found.suspect.evidence[0]


def test_the_rerun_is_that_of_the_vendor(tmp_path: Path) -> None:
    facts = {"vendor": "nvidia", "argv": ["dsv4prof", "run", "--name", "a b"]}
    ring = RingWriter(tmp_path / "n", facts=facts, launches=4, captured=1, buffers=1)
    commands = [each.command for each in diagnose_fault(read_fault_record(ring.path), []).reruns]
    assert commands[0] == "CUDA_LAUNCH_BLOCKING=1 dsv4prof run --name 'a b'"
    assert any("compute-sanitizer --tool memcheck" in each for each in commands)
    assert not any("AMD_" in each for each in commands)


def test_a_log_alone_says_what_it_can(ring: RingWriter) -> None:
    found = diagnose_fault(None, read_messages(MESSAGE.format(BASE)))
    assert found.message is not None
    assert found.place is None
    assert "no fault record" in found.unsure[0]
    assert found.reruns[0].command.startswith("AMD_SERIALIZE_KERNEL=3")
    assert any("--fault-watch -- YOUR COMMAND" in each.command for each in found.reruns)
