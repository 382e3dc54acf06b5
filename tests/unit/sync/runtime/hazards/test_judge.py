"""Conflicts against a brute-force oracle: the transitive closure of every edge, over every pair of accesses."""

from __future__ import annotations

from itertools import product

from hypothesis import given, settings
from hypothesis import strategies as st

from dsv4prof.sync.runtime.hazards.events import (
    Freed,
    HostUse,
    HostWaits,
    Kept,
    Made,
    Recorded,
    Span,
    StreamWaits,
    Work,
)
from dsv4prof.sync.runtime.hazards.judge import Judge, judge

STREAMS, EVENTS, BUFFERS = (0, 1, 2), (7, 8), (1, 2)


def whole(buffer, low=0, high=64):
    return Span(buffer, low, high)


def made(buffer, place="device", stream=0):
    return Made(buffer, 4096 * buffer, 64, place, stream, 0)


spans = st.tuples(st.sampled_from(BUFFERS), st.sampled_from([(0, 64), (0, 32), (32, 64), (16, 48)])).map(
    lambda pair: whole(pair[0], *pair[1])
)
somes = st.lists(spans, max_size=2).map(tuple)
steps = st.one_of(
    st.builds(lambda s, r, w: ("work", s, r, w), st.sampled_from(STREAMS), somes, somes),
    st.builds(lambda r, w: ("host", r, w), somes, somes),
    st.builds(lambda e, s: ("record", e, s), st.sampled_from(EVENTS), st.sampled_from(STREAMS)),
    st.builds(lambda s, e: ("wait event", s, e), st.sampled_from(STREAMS), st.sampled_from(EVENTS)),
    st.builds(lambda s, o: ("wait stream", s, o), st.sampled_from(STREAMS), st.sampled_from(STREAMS)),
    st.builds(lambda e: ("host event", e), st.sampled_from(EVENTS)),
    st.builds(lambda s: ("host stream", s), st.sampled_from(STREAMS)),
    st.just(("host device",)),
)


def events_of(program):
    """Each step has a site of its own, so that a conflict names exactly two steps."""
    found = [made(1, "pinned"), made(2, "pinned")]
    for site, step in enumerate(program, 1):
        match step:
            case ("work", stream, reads, writes):
                found.append(Work(stream, "work", reads, writes, site, 0))
            case ("host", reads, writes):
                found.append(HostUse("host", reads, writes, site, 0))
            case ("record", event, stream):
                found.append(Recorded(event, stream))
            case ("wait event", stream, event):
                found.append(StreamWaits(stream, event=event))
            case ("wait stream", stream, other):
                found.append(StreamWaits(stream, other=other))
            case ("host event", event):
                found.append(HostWaits("wait", site, 0, event=event))
            case ("host stream", stream):
                found.append(HostWaits("wait", site, 0, stream=stream))
            case _:
                found.append(HostWaits("wait", site, 0))
    return found


def oracle(program):
    """Nodes are steps; an edge says that what the first did is over before the second begins."""
    count = len(program)
    before = [[False] * count for _ in range(count)]
    # The host's own node of step i follows each host node; device work of step i follows host nodes before it.
    is_work = [step[0] == "work" for step in program]
    tails = {stream: [] for stream in STREAMS}
    recorded = {}
    held = {stream: set() for stream in STREAMS}  # work that must be over before the next on the stream
    known = set()  # work that the host knows to be over
    for index, step in enumerate(program):
        if step[0] == "work":
            over = set(known) | set(tails[step[1]]) | held[step[1]]
            tails[step[1]].append(index)
        elif step[0] == "host":
            over = set(known)
        else:
            over = set()
            if step[0] == "record":
                recorded[step[1]] = set(tails[step[2]]) | held[step[2]] | set(known)
            elif step[0] == "wait event":
                held[step[1]] |= recorded.get(step[2], set())
            elif step[0] == "wait stream":
                held[step[1]] |= set(tails[step[2]]) | held[step[2]]
            elif step[0] == "host event":
                known |= recorded.get(step[1], set())
            elif step[0] == "host stream":
                known |= set(tails[step[1]]) | held[step[1]]
            else:
                known |= {i for i in range(index) if is_work[i]}
        for earlier in over:
            before[earlier][index] = True
    pairs = set()
    for first, second in product(range(count), range(count)):
        if first >= second or not is_work[first] or program[second][0] not in ("work", "host"):
            continue
        if before[first][second]:
            continue
        a, b = accesses(program[first]), accesses(program[second])
        if any(x.overlaps(y) and (i or j) for (x, i), (y, j) in product(a, b)):
            pairs.add((first + 1, second + 1))
    return pairs


def accesses(step):
    reads, writes = step[-2], step[-1]
    return [(span, False) for span in reads] + [(span, True) for span in writes]


@settings(max_examples=400, deadline=None)
@given(st.lists(steps, max_size=14))
def test_every_conflict_is_one_of_the_oracle_and_the_last_of_each_stream_is_found(program):
    found = {(conflict.first.site, conflict.second.site) for conflict in judge(events_of(program)).values()}
    wanted = oracle(program)
    assert found <= wanted
    # An older access of a stream stands behind a newer one of the same bytes; the second party is never lost.
    assert {second for _, second in found} == {second for _, second in wanted}


@settings(max_examples=150, deadline=None)
@given(st.lists(steps, max_size=10), st.integers(1, 3))
def test_pruning_changes_nothing(program, every):
    plain = judge(events_of(program))
    pruned = Judge()
    for number, event in enumerate(events_of(program)):
        pruned.feed(event)
        if number % every == 0:
            pruned._pending.prune(pruned._clocks.host)
            pruned._clocks.prune()
    assert set(pruned.conflicts) == set(plain)


def test_memory_is_bounded_by_what_is_not_known_to_be_over():
    judged = Judge()
    judged.feed(made(1))
    for turn in range(20_000):
        judged.feed(Work(0, "op", (whole(1),), (whole(1, turn % 64, turn % 64 + 1),), 1, 0))
        if turn % 8 == 0:
            judged.feed(HostWaits("wait", 2, 0, stream=0))
    assert judged.size < 200 and not judged.conflicts


def test_rows_of_one_pitch_that_share_no_column_do_not_overlap():
    left, right = Span(1, 0, 56, 16, 8), Span(1, 8, 64, 16, 8)
    assert not left.overlaps(right) and left.overlaps(Span(1, 4, 60, 16, 8)) and left.overlaps(Span(1, 0, 64))


def test_pinned_memory_that_a_raw_copy_reads_may_not_be_freed_before_it():
    events = [made(1, "pinned", None), Work(0, "raw copy", (whole(1),), (), 1, 0, False), Freed(1, 2, 0)]
    (conflict,) = judge(events).values()
    assert (conflict.code, conflict.trouble) == ("DSV203", "freed")
    assert not judge([*events[:2], HostWaits("wait", 3, 0, stream=0), events[2]])
    # torch's own allocator waits for the copies that it knows of.
    assert not judge([events[0], Work(0, "copy", (whole(1),), (), 1, 0), Freed(1, 2, 0)])


def test_memory_freed_on_its_stream_while_another_uses_it_needs_record_stream():
    use = [
        made(1),
        Work(0, "fill", (), (whole(1),), 1, 0),
        StreamWaits(5, other=0),
        Work(5, "read", (whole(1),), (), 2, 0),
    ]
    (conflict,) = judge([*use, Freed(1, 3, 0), made(2)]).values()
    assert (conflict.code, conflict.trouble, conflict.first.site) == ("DSV204", "freed-in-use", 2)
    assert not judge([*use, Kept(1, 5), Freed(1, 3, 0), made(2)])
    # It is handed on only to what comes after the wait.
    assert not judge([*use, Freed(1, 3, 0), StreamWaits(0, other=5), made(2)])
    assert not judge([*use, Freed(1, 3, 0), made(2, stream=5)])


def test_a_write_after_a_read_names_both_sides():
    events = [made(1), Work(0, "read", (whole(1),), (), 1, 0), Work(3, "write", (), (whole(1),), 2, 0)]
    (conflict,) = judge(events).values()
    assert conflict.trouble == "write-after-read" and (conflict.first.stream, conflict.second.stream) == (0, 3)
    assert not judge([events[0], events[1], Recorded(1, 0), StreamWaits(3, event=1), events[2]])
    # An event of before the read orders nothing.
    assert judge([events[0], Recorded(1, 0), events[1], StreamWaits(3, event=1), events[2]])
