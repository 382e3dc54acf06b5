"""A log forgets only what can never matter, whatever waits are taken away from it later."""

from __future__ import annotations

import gzip

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsv4prof.errors import InputError
from dsv4prof.model.syncs import Frame
from dsv4prof.sync.runtime.hazards.events import Freed, HostUse, HostWaits, Made, Recorded, Span, StreamWaits, Work
from dsv4prof.sync.runtime.hazards.judge import judge
from dsv4prof.sync.runtime.hazards.log import FORMAT, Keeper, Log, load, save

KINDS = ("work", "host", "wait", "record", "event", "join", "free", "make")
choices = st.lists(
    st.tuples(st.sampled_from(KINDS), st.integers(0, 2), st.integers(0, 3), st.integers(0, 2), st.booleans()),
    max_size=40,
)


def program(chosen):
    """Buffers 0 to 3 are made, freed and made anew under new numbers; even ones are pinned."""
    events, current, number = [], {}, 0
    for site, (kind, stream, buffer, other, flag) in enumerate(chosen, 1):
        if buffer not in current:
            number += 1
            current[buffer] = number
            place = "device" if buffer % 2 else "pinned"
            events.append(Made(number, 64 * buffer, 64, place, stream if buffer % 2 else None, site))
        span = (Span(current[buffer], 0, 64 if flag else 32),)
        if kind == "work":
            events.append(Work(stream, "op", span if flag else (), () if flag else span, site, 0, other > 0))
        elif kind == "host" and buffer % 2 == 0:
            events.append(HostUse("op", span if flag else (), () if flag else span, site, 0))
        elif kind == "wait":
            events.append(HostWaits("wait", site, 0, stream=stream))
        elif kind == "record":
            events.append(Recorded(other, stream))
        elif kind == "event":
            events.append(StreamWaits(stream, event=other))
        elif kind == "join":
            events.append(StreamWaits(stream, other=other))
        elif kind == "free":
            events.append(Freed(current.pop(buffer), site, 0))
    return events


def troubles(events):
    """What a reader acts on: each second side and the buffer. Of many first sides on one stream, the last is kept."""
    return {(found.trouble, found.second.site, found.buffer.buffer) for found in judge(events).values()}


@settings(max_examples=400, deadline=None)
@given(choices, st.integers(2, 30), st.booleans())
def test_compacting_changes_no_verdict_with_or_without_waits(chosen, limit, without_waits):
    events, keeper = program(chosen), Keeper(limit=1000)
    for place, event in enumerate(events, 1):
        keeper.add(event)
        if place % limit == 0:
            keeper.compact()
    keeper.compact()

    def left(items):
        return [event for event in items if not (without_waits and isinstance(event, HostWaits))]

    assert troubles(left(keeper.events)) == troubles(left(events))


def test_private_memory_is_forgotten_and_a_long_log_is_cut_from_its_beginning():
    keeper = Keeper(limit=100)
    for turn in range(10_000):
        keeper.add(Made(turn, 64, 64, "device", 0, 1))
        keeper.add(Work(0, "op", (Span(turn, 0, 64),), (), 1, 0))
        keeper.add(Freed(turn, 1, 0))
    keeper.compact()
    assert keeper.events == [] and keeper.lost == 0
    keeper.add(Made(-1, 64, 64, "pinned", None, 1))
    for _ in range(1000):
        keeper.add(Work(0, "op", (Span(-1, 0, 64),), (), 1, 0))
        keeper.add(HostUse("op", (), (Span(-1, 0, 64),), 1, 0))
    keeper.compact()
    assert len(keeper.events) <= 401 and keeper.lost > 0 and isinstance(keeper.events[0], Made)


def test_a_log_comes_back_from_its_file_as_it_was(tmp_path):
    events = program([("work", 0, 0, 0, True), ("host", 0, 0, 0, False), ("wait", 1, 1, 0, True)])
    log = Log(format=FORMAT, command="x", steps=3, sites=[(), (Frame("a.py", 3, "f"),)], events=events, lost=2)
    save(log, tmp_path / "run.hazards.json.gz")
    assert load(tmp_path / "run.hazards.json.gz") == log


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"\x1f\x8bxx", gzip.compress(b'{"events": 3}', mtime=0), b'{"format": "other/9"}']
)
def test_a_file_that_is_something_else_is_one_sentence(tmp_path, content):
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        load(path)
    assert "\n" not in str(caught.value) and caught.value.hint
    with pytest.raises(InputError):
        load(tmp_path / "absent")
