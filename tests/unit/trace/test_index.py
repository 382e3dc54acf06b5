"""Nesting, correlation, steps."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dsv4prof.model.event import Slice, Track
from dsv4prof.model.phase import Phase
from dsv4prof.model.session import RankCoordinates
from dsv4prof.model.trace import RankTrace, TrackInfo
from dsv4prof.trace.index import MAX_CHAIN, RankIndex, TraceIndex, by_track
from dsv4prof.trace.merge import merge
from dsv4prof.trace.steps import accepted_markers
from traces import call, kernel, merged, note, op


def _rank(tmp_path: Path, *events: dict[str, object]) -> RankIndex:
    return TraceIndex(merged(tmp_path, list(events)))[0]


def _chain(rank: RankIndex, name: str) -> list[str]:
    index = next(i for i, event in enumerate(rank.slices) if event.name == name)
    return [rank.slices[place].name for place in rank.chain(index)]


def test_the_chain_goes_from_inside_to_outside_on_one_thread(tmp_path: Path) -> None:
    rank = _rank(tmp_path, op("inner", 3, 2), op("outer", 1, 9), note("range", 0, 20), op("other", 0, 50, tid=5))
    assert _chain(rank, "inner") == ["outer", "range"]
    assert _chain(rank, "other") == []


def test_slices_that_cross_hide_none_that_enclose(tmp_path: Path) -> None:
    rank = _rank(tmp_path, note("step", 0, 20), op("crosses", 15, 30), op("inside", 16, 2), op("after", 30, 5))
    assert _chain(rank, "inside") == ["crosses", "step"]
    assert _chain(rank, "after") == ["crosses"]
    assert _chain(rank, "crosses") == []


def test_graph_work_is_found_by_its_launch_and_zero_is_no_key(tmp_path: Path) -> None:
    rank = _rank(
        tmp_path,
        call("hipGraphLaunch", 0, 5, 7),
        kernel("k1", 10, 2, 7, tid=0),
        kernel("k2", 13, 2, 7, tid=0),
        kernel("lost", 20, 2, 0, tid=0),
        kernel("lost too", 23, 2, 0, tid=0),
    )
    work = rank.gpu_by_correlation
    assert {key: [rank.slices[i].name for i in value] for key, value in work.items()} == {7: ["k1", "k2"]}
    assert len(rank.gpu_ops) == 4
    assert rank.has_gpu


def test_own_steps_carry_phases_kind_and_acceptance(tmp_path: Path) -> None:
    rank = _rank(
        tmp_path,
        note("dsv4.step#12 kind=decode requests=4 rows=16", 0, 100),
        note("dsv4.phase draft requests=4 rows=12 graph=eager", 5, 20),
        note("dsv4.phase target_verify requests=4 rows=16 graph=captured", 30, 40),
        note("dsv4.accepted requests=4 tokens=9", 75, 0),
        note("dsv4.phase draft_extend requests=4 rows=9", 80, 10),
        note("dsv4.step#13 kind=decode requests=4 rows=16", 110, 50),
    )
    first, second = rank.steps
    assert (first.index, first.kind, first.requests, first.accepted) == (12, "decode", 4, 9)
    assert [(p.phase, p.captured) for p in first.phases] == [
        (Phase.DRAFT, False),
        (Phase.TARGET_VERIFY, True),
        (Phase.DRAFT_EXTEND, None),
    ]
    assert (second.index, second.phases, second.accepted) == (13, (), None)
    assert rank.step_at(first.start_ns) is first
    assert rank.step_at(first.end_ns) is None
    assert rank.step_at(first.start_ns - 1) is None


def test_device_copies_of_annotations_are_no_steps(tmp_path: Path) -> None:
    name = "dsv4.step#1 kind=decode"
    rank = _rank(tmp_path, note(name, 0, 10), {**note(name, 2, 30, pid=0, tid=7), "cat": "gpu_user_annotation"})
    assert len(rank.steps) == 1


def test_forwards_of_a_server_are_grouped_into_speculative_steps(tmp_path: Path) -> None:
    events = []
    for n in range(3):
        events += [
            note("step[DRAFT bs=2 tok=2]", n * 100, 10),
            note("step[TARGET_VERIFY bs=2 tok=8]", n * 100 + 20, 30),
            note("step[DRAFT_EXTEND bs=2 tok=8]", n * 100 + 60, 10),
        ]
    rank = _rank(tmp_path, *events)
    assert [len(step.phases) for step in rank.steps] == [3, 3, 3]
    assert {step.requests for step in rank.steps} == {2}
    assert rank.steps[0].end_ns == rank.steps[1].start_ns


@pytest.mark.parametrize(
    ("modes", "steps"),
    [
        (["EXTEND", "DECODE", "DECODE", "EXTEND", "DECODE"], [1, 1, 1, 1, 1]),
        (["EXTEND", "DRAFT_EXTEND", "DRAFT", "TARGET_VERIFY", "DRAFT_EXTEND", "DRAFT", "TARGET_VERIFY"], [2, 3, 2]),
        (["TARGET_VERIFY", "DRAFT_EXTEND", "DRAFT", "TARGET_VERIFY", "DRAFT_EXTEND", "DRAFT"], [3, 3]),
        (["EXTEND", "TARGET_VERIFY", "DRAFT_EXTEND", "DRAFT"], [1, 3]),
    ],
)
def test_forwards_become_steps(tmp_path: Path, modes: list[str], steps: list[int]) -> None:
    rank = _rank(tmp_path, *(note(f"step[{mode} bs=1]", n * 20, 9) for n, mode in enumerate(modes)))
    assert [len(step.phases) for step in rank.steps] == steps
    assert [step.index for step in rank.steps] == list(range(len(steps)))


def test_forwards_of_vllm_are_steps_unless_better_names_are_there(tmp_path: Path) -> None:
    execute = [
        note("execute_context_1(64)_generation_0(0)", 0, 10),
        note("execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_4(sq4sk9sqsq4sqsk9)", 20, 10),
    ]
    rank = _rank(tmp_path, *execute)
    assert [phase.phase for step in rank.steps for phase in step.phases] == [Phase.PREFILL, Phase.DECODE]
    assert rank.steps[-1].phases[-1].label.endswith("bs=4")
    both = _rank(tmp_path, *execute, note("step[DECODE bs=4]", 22, 5))
    assert [phase.label for step in both.steps for phase in step.phases] == ["step[DECODE bs=4]"]


def test_profiler_steps_hold_the_forwards_inside_them(tmp_path: Path) -> None:
    rank = _rank(
        tmp_path, note("ProfilerStep#5", 0, 100), note("step[DECODE bs=1]", 10, 50), note("ProfilerStep#6", 100, 100)
    )
    assert [(step.index, len(step.phases)) for step in rank.steps] == [(5, 1), (6, 0)]


def test_profiler_steps_hold_named_phases_and_what_was_accepted(tmp_path: Path) -> None:
    rank = _rank(
        tmp_path,
        note("ProfilerStep#5", 0, 100),
        note("dsv4.phase draft requests=2 rows=2", 10, 20),
        note("dsv4.phase target_verify requests=2 rows=8", 40, 30),
        note("dsv4.accepted requests=2 tokens=5", 80, 0),
    )
    (step,) = rank.steps
    assert [phase.phase for phase in step.phases] == [Phase.DRAFT, Phase.TARGET_VERIFY]
    assert step.accepted == 5


@pytest.mark.parametrize("name", ["step[UNKNOWN bs=1]", "dsv4.phase nonsense", "anything", "dsv4.step"])
def test_other_names_make_no_step(tmp_path: Path, name: str) -> None:
    assert _rank(tmp_path, note(name, 0, 10)).steps == []


def test_acceptance_markers_need_both_numbers(tmp_path: Path) -> None:
    rank = _rank(tmp_path, note("dsv4.accepted requests=2 tokens=5", 9, 0), note("dsv4.accepted requests=2", 3, 0))
    assert [(m.requests, m.tokens) for m in accepted_markers(rank.slices)] == [(2, 5)]


def test_a_slice_on_a_lane_is_placed_there(tmp_path: Path) -> None:
    rank = _rank(tmp_path, kernel("a", 0, 10), kernel("b", 5, 10))
    (pid, tid), (lane_pid, lane_tid) = rank.place(0), rank.place(1)
    assert (pid, tid) == (lane_pid, 7)
    assert lane_tid != 7


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), min_size=1, max_size=25))
def test_a_parent_is_the_innermost_of_the_chain(spans: list[tuple[int, int]]) -> None:
    track = Track(1, 1)
    slices = [Slice(str(n), "cpu_op", track, start, dur) for n, (start, dur) in enumerate(spans)]
    trace = RankTrace("t.json", RankCoordinates(rank=0), slices, [], [], [], [TrackInfo(track)], {}, 0, [])
    rank = TraceIndex(merge([trace]))[0]
    assert rank.parents == [next(iter(rank.chain(index)), -1) for index in range(len(slices))]


def test_a_chain_too_deep_to_be_true_is_walked_in_part(tmp_path: Path) -> None:
    depth = MAX_CHAIN + 50
    rank = TraceIndex(merged(tmp_path, [op(f"op{n}", n, 3 * depth - 2 * n) for n in range(depth)]))[0]
    assert rank.chain(depth - 1) == list(range(depth - 2, 48, -1))


def test_parents_come_before_children_of_the_same_start() -> None:
    track = Track(1, 1)
    slices = [Slice("child", "", track, 0, 5), Slice("parent", "", track, 0, 9)]
    assert by_track(slices)[track] == [1, 0]
