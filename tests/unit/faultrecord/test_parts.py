"""Stacks of a hung rank, and the CPU part of what its profiler could not save."""

from __future__ import annotations

import faulthandler
import json
import threading
from pathlib import Path

from dsv4prof.faultrecord.cpu_part import cpu_part
from dsv4prof.faultrecord.layout import Kind
from dsv4prof.faultrecord.reader import read_fault_record
from dsv4prof.faultrecord.ring import RingWriter
from dsv4prof.faultrecord.stacks import read_stacks


def test_stacks_as_python_writes_them(tmp_path: Path) -> None:
    release, waits = threading.Event(), threading.Event()

    def wait_here() -> None:
        waits.set()
        release.wait(20)

    thread = threading.Thread(target=wait_here)
    thread.start()
    waits.wait(20)
    with (tmp_path / "s").open("w") as file:
        faulthandler.dump_traceback(file=file)
        faulthandler.dump_traceback(file=file)
    release.set()
    thread.join()
    stacks = read_stacks((tmp_path / "s").read_text())
    assert len(stacks) == len({stack.thread for stack in stacks}), "only the last dump"
    places = [stack.place for stack in stacks]
    assert any(place is not None and place.function == "wait_here" for place in places)
    assert stacks[-1].frames[0].function == test_stacks_as_python_writes_them.__name__, "main comes last"


def test_no_stacks_in_other_text() -> None:
    assert read_stacks('hello\n  File "x", line 3 in f\n') == []


def test_the_cpu_part_has_steps_phases_and_launches(tmp_path: Path) -> None:
    ring = RingWriter(tmp_path / "r", facts={"rank": 2, "world_size": 4}, launches=64, captured=1, buffers=1)
    for step in range(2):
        ring.launch(Kind.STEP, step=step, kernel=ring.name("decode"))
        ring.launch(Kind.PHASE, step=step, kernel=ring.name("draft"))
        ring.launch(Kind.OPERATOR, step=step, operator=ring.name("aten::mm"), thread=5)
        if step == 0:
            ring.launch(Kind.PHASE_END, step=step, kernel=ring.name("draft"))
            ring.launch(Kind.STEP_END, step=step, kernel=ring.name("decode"))
    trace = json.loads(cpu_part(read_fault_record(ring.path)))
    names = [event["name"] for event in trace["traceEvents"]]
    assert names.count("aten::mm") == 2
    assert "step 0 decode" in names
    assert "step 1 decode (not ended)" in names
    assert "phase draft (not ended)" in names
    assert all(isinstance(event["ts"], int) and event["dur"] >= 0 for event in trace["traceEvents"])
    assert trace["distributedInfo"] == {"rank": 2, "world_size": 4}
