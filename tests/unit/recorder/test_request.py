"""A start request becomes the plan that its client means, or one sentence about one field; never something else."""

from __future__ import annotations

import json
import subprocess
import sys

import msgspec
import pytest

from dsv4prof.errors import UsageError
from dsv4prof.model.phase import Phase
from dsv4prof.recorder.plan import RecordPlan
from dsv4prof.recorder.request import PLAN_FIELDS, StartRequest, parse_start


def parse(base: RecordPlan | None = None, **fields: object) -> StartRequest:
    return parse_start(json.dumps(fields).encode(), base)


@pytest.mark.parametrize("body", [b"", b" \r\n", b"null", b"{}", b'{"num_steps": null, "profile_id": null}'])
def test_nothing_said_records_at_once_until_it_is_stopped(body: bytes) -> None:
    request = parse_start(body)
    assert request == StartRequest(plan=RecordPlan(active=None))
    assert request.plan.with_stack
    assert not request.plan.record_shapes
    assert request.plan.first_step == 0


def test_a_request_of_sglangs_own_client_is_understood() -> None:
    request = parse(
        output_dir="/data/traces", num_steps=5, activities=["CPU", "GPU"], profile_by_stage=False, merge_profiles=False,
        profile_prefix="before", profile_id="17", with_stack=False, record_shapes=True, start_step=0,
        profile_stages=None, detailed_annotations=False, req_type=1, rid=None,
    )  # fmt: skip
    assert request.plan == RecordPlan(active=5, with_stack=False, record_shapes=True)
    assert (request.root, request.name) == ("/data/traces", "before-17")


@pytest.mark.parametrize(
    ("activities", "expected"),
    [
        (["CPU"], "cpu"),
        (["GPU"], "gpu"),
        (["GPU", "CPU"], "auto"),
        (["CPU", "GPU", "MEM"], "auto+mem"),
        (["RPD"], "rpd"),
        (["CUDA_PROFILER"], "cuda_profiler"),
        (["cpu", "gpu", "CUDA_PROFILER"], "auto+cuda_profiler"),
        ("cpu+gpu", "cpu+gpu"),
        ("auto", "auto"),
    ],
)
def test_activities(activities: object, expected: str) -> None:
    assert parse(activities=activities).plan.activities == expected


def test_a_gpu_that_may_be_absent_is_spoken_of() -> None:
    assert parse(activities=["CPU"]).notes == []
    (note,) = parse(activities=["CPU", "GPU"]).notes
    assert "if torch can trace one here" in note
    (note,) = parse(merge_profiles=True).notes
    assert "dsv4prof merge" in note


def test_stages() -> None:
    both = (Phase.PREFILL, Phase.DECODE)
    assert parse(profile_by_stage=True, num_steps=3).plan.stages == both
    assert parse(profile_by_stage=True, num_steps=3, stages=["prefill", "decode"]).plan.stages == both
    assert parse(num_steps=3, profile_stages=["Draft-Extend"]).plan.stages == (Phase.DRAFT_EXTEND,)
    assert parse(active=3, stages="target_verify,draft", windows=2).plan.window_names() == (
        "target_verify-1", "draft-1", "target_verify-2", "draft-2",
    )  # fmt: skip
    assert parse(profile_by_stage=False, num_steps=3).plan.stages == ()


def test_steps() -> None:
    assert parse(start_step=40, num_steps=2).plan.start_step == 40
    assert parse(start_step=0, wait=3, num_steps=2).plan.first_step == 3
    assert parse(num_steps=0).plan.active is None
    assert parse(active=4, num_steps=4, warmup=1).plan.first_step == 1


def test_every_field_of_the_plan_can_be_set_by_its_name() -> None:
    assert set(PLAN_FIELDS) == {field.name for field in msgspec.structs.fields(RecordPlan)}
    asked: dict[str, object] = {
        "wait": 1, "warmup": 2, "active": 3, "windows": 2, "ranks": [0, 5], "activities": "cpu", "with_stack": False,
        "record_shapes": True, "profile_memory": True, "with_flops": True, "with_modules": True, "size_limit_mb": 7,
        "time_limit_s": 2, "release": "keep",
    }  # fmt: skip
    assert parse(**asked).plan == RecordPlan(**{**asked, "ranks": (0, 5)})  # type: ignore[arg-type]
    assert parse(size_limit_mb=0).plan.size_limit_mb is None
    assert parse(ranks="node").plan.ranks == "node"


def test_the_servers_own_plan_fills_in_what_is_unsaid_but_no_steps() -> None:
    base = RecordPlan(wait=3, active=9, windows=2, release="keep", with_stack=False, size_limit_mb=11)
    plan = parse(base, record_shapes=True).plan
    assert plan == RecordPlan(active=None, release="keep", with_stack=False, size_limit_mb=11, record_shapes=True)
    assert parse(base, with_stack=True, release="collect").plan.release == "collect"


@pytest.mark.parametrize(
    ("fields", "words", "hint"),
    [
        ({"num_step": 3}, "unknown field 'num_step'", "did you mean 'num_steps'?"),
        ({"Activities": []}, "unknown field 'Activities'", "did you mean 'activities'?"),
        ({"qqqq": 1}, "unknown field 'qqqq'", "one of active, activities"),
        ({"x" * 5000: 1}, "unknown field", "one of"),
        ({"num_steps": "3"}, "num_steps has to be a whole number below 2147483648, not '3'", "null"),
        ({"num_steps": 2.5}, "num_steps has to be a whole number", "null"),
        ({"num_steps": True}, "num_steps has to be a whole number", "null"),
        ({"with_stack": 1}, "with_stack has to be true or false", "null"),
        ({"output_dir": 5}, "output_dir has to be a text", "null"),
        ({"activities": ["CPU", 3]}, "activities has to be a list of texts", "null"),
        ({"activities": {"CPU": 1}}, "activities has to be a list of texts", "null"),
        ({"ranks": [0, "1"]}, "ranks has to be", "null"),
        ({"activities": ["TPU"]}, "unknown activity 'tpu'", "cpu"),
        ({"activities": []}, "no activity", "cpu"),
        ({"num_steps": -1}, "-1 steps records nothing", "active"),
        ({"start_step": -4}, "-4 steps", "0 or more"),
        ({"num_steps": 3, "active": 4}, "num_steps and active", "one of them"),
        ({"profile_by_stage": True}, "needs a number of steps for each stage", "num_steps"),
        ({"profile_stages": ["prefil"], "num_steps": 1}, "unknown stage 'prefil'", "prefill"),
        ({"profile_by_stage": False, "stages": ["decode"], "num_steps": 1}, "profile_by_stage is false", "one of them"),
        ({"stages": ["decode"], "profile_stages": ["prefill"], "num_steps": 1}, "stages and profile_stages", "one of"),
        ({"windows": 2}, "without end", "active"),
        ({"release": "later"}, "unknown release", "collect"),
        ({"req_type": 2}, "something else than a start", "/stop_profile"),
        ({"session": "/a", "output_dir": "/b"}, "where the trace goes", "one of them"),
        ({"output_dir": "~nobody-of-this-name/x"}, "has no home folder", "full path"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_sentence(fields: dict[str, object], words: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(**fields)
    assert words in caught.value.message
    assert hint in (caught.value.hint or "")
    assert len(caught.value.message) < 200


@pytest.mark.parametrize(
    "body",
    [b"{", b"num_steps=3", b"[1]", b'"text"', b"\xff\xfe", b'{"num_steps": NaN}', b"[" * 100_000, b"\0",
     b'{"num_steps": 1' + b"0" * 400 + b"}", b'{"time_limit_s": 1e999}', b'{"output_dir": "\\ud800"}'],
)  # fmt: skip
def test_a_body_that_is_no_json_object_is_refused(body: bytes) -> None:
    with pytest.raises(UsageError) as caught:
        parse_start(body)
    assert len(caught.value.message) < 300


def test_reading_a_request_needs_no_torch() -> None:
    code = "import dsv4prof.recorder.request, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
