"""A hang in a server's own logs, whatever its fields are called; and what is none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dsv4prof.api.fault_hanging import fault_hang
from dsv4prof.api.fault_record import fault_show
from dsv4prof.errors import InputError
from dsv4prof.faultrecord.hang import Hang, diagnose
from dsv4prof.faultrecord.messages import read_messages
from dsv4prof.faultrecord.metadata import words_of
from dsv4prof.faultrecord.steplog import read_step_log

DRAIN: list[dict[str, Any]] = [
    {"step": 0, "t": 0.0, "running": 4, "padded_bs": 4, "ctx_lens": [901, 877, 1203, 655]},
    {"step": 1, "t": 0.05, "running": 4, "padded_bs": 4, "ctx_lens": [902, 878, 1204, 656]},
    {"step": 2, "t": 0.1, "running": 3, "padded_bs": 4, "ctx_lens": [903, 879, 1205, -1]},
    {"heartbeat": True, "t": 60.1, "last_step": 2, "gpu_util": 100, "kernel_running": "persistent_topk",
     "kernel_age_s": 60.0},
]  # fmt: skip
QUEUE = "t=65.0 ERROR shm_broadcast: no message in 60 s, engine core considered dead\n"


def judge(rows: list[dict[str, Any]], said: str = "") -> Hang:
    log = read_step_log("\n".join(map(json.dumps, rows)))
    assert log is not None
    return diagnose(log, read_messages(said))


def test_the_drained_batch() -> None:
    hang = judge(DRAIN, QUEUE)
    assert hang.hung
    assert hang.step is not None
    assert (hang.step.index, hang.since_s) == (2, 0.1)
    assert (hang.kernel, hang.kernel_s) == ("persistent_topk", 60.0)
    (bad,) = hang.bad
    assert words_of(bad).startswith("ctx_lens[3] = -1 in a padding slot (running 3, padded 4); as uint32 4294967295")
    assert hang.changed == (
        "one request left (4 to 3 running)",
        "first step with padding (1 of 4 slots)",
        "ctx_lens[3] went from 656 to -1",
    )
    assert [each.kind for each in hang.consequences] == ["queue-timeout"]
    assert hang.causes == ()
    assert "persistent_topk" in hang.suspicion


def test_case_44_whole(shared: Path) -> None:
    folder = shared / "cases" / "44-hang-when-batch-drains"
    report = fault_hang(folder / "steps.jsonl", logs=[folder / "api.log"])
    assert report.verdict.exit_code == 1
    assert report.verdict.summary == "hang at step 2 since t=0.10: kernel persistent_topk running for 60 s"
    codes = [finding.code for finding in report.findings]
    assert codes == ["DSV803", "DSV804"]
    text = " ".join(check.message for check in report.checks)
    assert "a consequence, not the cause: t=65.0 ERROR shm_broadcast" in text
    assert "changed between step 1 and step 2: one request left" in text
    assert any("bounded time" in note for note in report.notes)
    assert fault_show(str(folder / "steps.jsonl")).findings[0].code == "DSV803", "show knows the kind of file"


RENAMED: list[dict[str, Any]] = [
    {"iteration": 7, "timestamp_ms": 1000, "num_running_reqs": 8, "cuda_graph_bs": 8,
     "metadata": {"seq_lens": list(range(100, 108)), "block_table": [-1] * 8}},
    {"iteration": 8, "timestamp_ms": 1030, "num_running_reqs": 5, "cuda_graph_bs": 8,
     "metadata": {"seq_lens": [101, 102, 103, 104, 105, 4294967295, 4294967295, 1], "block_table": [-1] * 8}},
    {"event": "heartbeat", "timestamp_ms": 91030, "last_completed_step": 7, "gpu_utilization": 0.99,
     "current_kernel": "fused_mla_decode", "kernel_age_ms": 90000},
]  # fmt: skip


def test_other_names_units_and_types() -> None:
    hang = judge(RENAMED)
    assert hang.hung
    assert hang.step is not None
    assert hang.step.index == 8
    assert (hang.kernel, hang.kernel_s) == ("fused_mla_decode", 90.0)
    assert hang.since_s == pytest.approx(1.03)
    assert [(each.field, each.slot, each.padding) for each in hang.bad] == [
        ("metadata.seq_lens", 5, True), ("metadata.seq_lens", 6, True),
    ]  # fmt: skip
    assert "-1 read as unsigned" in words_of(hang.bad[0])
    assert hang.changed[0].startswith("3 requests left (8 to 5 running)")


@pytest.mark.parametrize(
    ("dtype", "value", "unsigned"),
    [
        ("int64", -1, 18446744073709551615),
        ("torch.int32", -1, 4294967295),
        ("int16", -3, 65533),
        (None, -1, 4294967295),
    ],
)
def test_the_width_of_the_numbers(dtype: str | None, value: int, unsigned: int) -> None:
    row: dict[str, Any] = {"step": 1, "t": 0, "running": 1, "padded_bs": 2, "kv_lens": [5, value]}
    if dtype is not None:
        row["kv_lens_dtype"] = dtype
    (bad,) = judge([row]).bad
    assert bad.unsigned == unsigned
    assert bad.assumed is (dtype is None)


@pytest.mark.parametrize(
    "field", ["block_table", "page_indices", "slot_mapping", "c4_out_loc", "topk_indices", "req_ids", "temperature"]
)
def test_where_minus_one_means_none_it_is_right(field: str) -> None:
    assert judge([{"step": 1, "t": 0, "running": 1, "padded_bs": 2, field: [4, -1]}]).bad == ()


def test_offsets_must_not_fall() -> None:
    (bad,) = judge([{"step": 1, "t": 0, "running": 3, "padded_bs": 3, "cu_seqlens_q": [0, 4, 2, 9]}]).bad
    assert (bad.slot, bad.value) == (2, 2)


def test_a_bad_length_of_a_request_is_not_called_padding() -> None:
    rows = [dict(row) for row in DRAIN]
    rows[2] = {**rows[2], "ctx_lens": [903, -1, 1205, 1]}
    (bad,) = judge(rows).bad
    assert bad.padding is False
    assert "padding" not in judge(rows).suspicion.replace("a slot", "")


def test_a_hang_without_padding_does_not_claim_it() -> None:
    rows = [{**row, "running": 4, "ctx_lens": [9, 9, 9, 9]} if "step" in row else row for row in DRAIN]
    hang = judge(rows, QUEUE)
    assert hang.hung
    assert hang.bad == ()
    assert not any("padding" in each for each in (*hang.changed, hang.suspicion))
    assert hang.changed == ()


def test_sane_padding_is_told_and_not_flagged() -> None:
    rows = [dict(row) for row in DRAIN]
    rows[2] = {**rows[2], "ctx_lens": [903, 879, 1205, 0]}
    hang = judge(rows, QUEUE)
    assert hang.hung
    assert hang.bad == ()
    assert "first step with padding (1 of 4 slots)" in hang.changed
    assert "padding" not in hang.suspicion


def test_padding_that_was_there_before_is_not_called_the_first() -> None:
    rows = [{"step": 0, "t": -0.05, "running": 3, "padded_bs": 4, "ctx_lens": [1, 1, 1, 1]}, *DRAIN]
    assert "a step with padding (1 of 4 slots)" in judge(rows).changed


def test_a_hang_in_a_collective_looks_at_the_other_rank() -> None:
    rows = [{**row, "running": 4, "ctx_lens": [9, 9, 9, 9]} if "step" in row else row for row in DRAIN]
    rows[-1] = {**rows[-1], "kernel_running": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"}
    said = (
        "[rank0]:[E822 16:31:16.131931664 P.cpp:632] [Rank 0] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=5730, OpType=BROADCAST, NumelIn=3, NumelOut=3, Timeout(ms)=600000) ran for 600009 "
        "milliseconds before timing out.\n"
        "[rank3]:[E822 16:31:16.135435629 P.cpp:632] [Rank 3] Watchdog caught collective operation timeout: "
        "WorkNCCL(SeqNum=5729, OpType=BROADCAST, NumelIn=3, NumelOut=3, Timeout(ms)=600000) ran for 600008 "
        "milliseconds before timing out.\n"
    )
    hang = judge(rows, said)
    assert hang.hung
    assert hang.collective
    assert "rank 3 furthest behind" in " ".join(hang.ranks)
    assert "did not arrive" in hang.suspicion
    assert len(hang.consequences) == 2


def test_a_rank_that_never_began_the_step_is_looked_at_first() -> None:
    rows = [
        {"rank": rank, "step": step, "t": step * 0.05, "running": 2, "padded_bs": 2, "seq_lens": [5, 6]}
        for step in range(5)
        for rank in range(2)
        if (rank, step) != (1, 4)
    ]
    hang = judge(rows, "t=65.0 ERROR shm_broadcast: no message in 60 s\n")
    assert hang.hung
    assert hang.ranks[0].startswith("rank 1 never began step 4")
    assert "did not arrive" in hang.suspicion


def test_lines_at_the_beginning_and_at_the_end_of_a_step() -> None:
    rows: list[dict[str, Any]] = []
    for step in range(3):
        rows.append({"event": "begin", "step": step, "t": step, "running": 4 - (step == 2), "padded_bs": 4})
        rows.append({"event": "end", "step": step, "t": step + 0.5})
    assert not judge(rows, QUEUE).hung
    hang = judge(rows[:-1], QUEUE)
    assert hang.hung
    assert hang.changed[0] == "one request left (4 to 3 running)"


def test_a_kernel_told_as_an_object() -> None:
    beat = {"type": "heartbeat", "t": 60.1, "last_step": 2, "running_kernel": {"name": "moe_sort", "age_s": 60}}
    hang = judge([*DRAIN[:-1], beat])
    assert (hang.kernel, hang.kernel_s) == ("moe_sort", 60.0)


def test_without_a_heartbeat_the_other_log_tells_how_long() -> None:
    hang = judge(DRAIN[:-1], QUEUE)
    assert hang.hung
    assert hang.kernel == ""
    assert hang.seconds == pytest.approx(64.9)


GOING = [{"step": n, "t": n * 0.05, "running": 4, "padded_bs": 4, "ctx_lens": [n + 1] * 4} for n in range(20)]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (GOING, ""),
        ([*GOING, {"event": "shutdown", "t": 1.0}], QUEUE),
        ([*GOING, {"heartbeat": True, "t": 1.0, "last_step": 19, "gpu_util": 100, "kernel_running": "k"}], ""),
        ([*GOING, {"heartbeat": True, "t": 90, "last_step": 19, "gpu_util": 0, "running": 0}], ""),
        ([*GOING, {"heartbeat": True, "t": 90, "last_step": 400, "gpu_util": 97, "kernel_running": "k"}], ""),
        ([*GOING, {"step": 20, "t": 1.0, "running": 0, "padded_bs": 0, "ctx_lens": []}], QUEUE),
        ([{**row, "duration_ms": 49} for row in GOING], QUEUE),
    ],
)
def test_what_is_no_hang(rows: list[dict[str, Any]], said: str) -> None:
    hang = judge(rows, said)
    assert not hang.hung, hang
    assert hang.reason


def test_a_stall_that_ended_is_told_as_such() -> None:
    rows = [*GOING, *({**row, "step": row["step"] + 20, "t": row["t"] + 31} for row in GOING)]
    hang = judge(rows)
    assert not hang.hung
    assert [round(each.seconds) for each in hang.stalls] == [30]


def test_a_log_that_was_cut_in_the_middle_of_a_line(tmp_path: Path) -> None:
    path = tmp_path / "steps.jsonl"
    path.write_text("\n".join(map(json.dumps, DRAIN)) + '\n{"heartbeat": true, "t": 70.1, "la')
    report = fault_hang(path)
    assert report.verdict.exit_code == 1
    assert any("no JSON" in check.message for check in report.checks)


@pytest.mark.parametrize("text", ["", "hello\n", '{"a": 1}\n', "[]"])
def test_a_file_without_steps_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "x.jsonl").write_text(text)
    with pytest.raises(InputError, match="no steps"):
        fault_hang(tmp_path / "x.jsonl")


def _drained(before: list[Any], last: list[Any], **more: Any) -> list[dict[str, Any]]:
    batch = {"batch": 5, "padded": len(last)}
    beat = {"heartbeat": True, "t": 60.0, "last_step": 1, "kernel_running": "k", "kernel_age_s": 59.0}
    steps = ((0, 0.0, before), (1, 0.1, last))
    return [*({"step": step, "t": t, **batch, "ctx_lens": values, **more} for step, t, values in steps), beat]


def test_a_slot_that_became_impossible_is_a_change_and_growing_lengths_are_none() -> None:
    hang = judge(_drained([209, 208, 207, 206, 205, 0, 0, 0], [210, 209, 208, 207, 206, 0, -1, 0]))
    assert hang.changed == ("ctx_lens[6] went from 0 to -1",)
    assert "in a padding slot (running 5, padded 8)" in words_of(hang.bad[0]), "batch is the running batch"


def test_a_padding_slot_that_changed_is_told_although_its_value_is_possible() -> None:
    hang = judge(_drained([9, 9, 9, 9, 9, 0, 0, 0], [10, 10, 10, 10, 10, 0, 77, 0]))
    assert hang.changed == ("ctx_lens[6] went from 0 to 77",)
    assert not hang.bad


def test_many_changed_slots_do_not_flood_and_indices_are_no_lengths() -> None:
    hang = judge(_drained([1] * 5 + [0] * 27, [2] * 5 + [-1] * 27, kv_indices=[3] * 9))
    assert len(hang.changed) == 5
    assert hang.changed[-1] == "23 more slots of ctx_lens changed so"


@pytest.mark.parametrize("batch", [9, {"id": 3}, [1] * 8, "x"])
def test_a_batch_that_cannot_be_the_number_of_requests_tells_no_padding(batch: Any) -> None:
    rows = [{**row, "batch": batch} if "step" in row else row for row in _drained([1] * 8, [2] * 7 + [-1])]
    assert judge(rows).bad[0].padding is None


@pytest.mark.parametrize("odd", [float("nan"), float("inf"), "nan", 2.5, "abc", None])
def test_a_value_that_is_no_number_hides_no_other(odd: Any, tmp_path: Path) -> None:
    rows = _drained([9, 9, 9, 9, 9, 0, 0, 0], [10, odd, 10, 10, 10, 0, -1, 0])
    named = {each.slot: each for each in judge(rows).bad}
    assert named[6].value == -1
    assert (1 in named) == (odd is not None)
    if odd is not None:
        assert "no whole number" in words_of(named[1])
    (tmp_path / "steps.jsonl").write_text("\n".join(map(json.dumps, rows)))
    report = fault_hang(tmp_path / "steps.jsonl")
    assert not any("impossible" in check.message for check in report.checks)


def test_offsets_around_what_is_no_number_are_compared() -> None:
    rows = _drained([1] * 8, [2] * 8, cu_seqlens=[0, 5, float("nan"), 3])
    assert [(bad.slot, bad.value) for bad in judge(rows).bad] == [(3, 3), (2, "NaN")]


@pytest.mark.parametrize("values", [[float("nan")] * 4, [[1, 2], [float("nan"), 4]]])
def test_a_list_of_nothing_else_and_one_in_rows(values: Any) -> None:
    assert any(bad.value == "NaN" for bad in judge(_drained([1] * 8, [2] * 8, seq_lens=values)).bad)


def test_means_and_names_are_no_list_of_lengths() -> None:
    rows = _drained([1] * 8, [2] * 8, mean_lens=[1.5, 2.0, 2.5], block_sizes=["small", "large"])
    assert judge(rows).bad == ()


def test_a_log_without_lengths_does_not_say_that_they_are_in_order(tmp_path: Path) -> None:
    rows = [{key: value for key, value in row.items() if key != "ctx_lens"} for row in DRAIN]
    (tmp_path / "steps.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (check,) = [each for each in fault_hang(tmp_path / "steps.jsonl").checks if each.key == "metadata"]
    assert check.ok is None
    assert "lists no lengths" in check.message
