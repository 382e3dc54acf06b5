"""Impossible plans are refused when they are made, with a hint, wherever they come from."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from dsv4prof.errors import UsageError
from dsv4prof.model.phase import Phase
from dsv4prof.model.session import RankCoordinates
from dsv4prof.recorder.plan import RecordPlan
from dsv4prof.settings import load_plan


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        ({"wait": 1, "start_step": 4}, "both say where"),
        ({"start_step": -1}, "cannot wait -1 steps"),
        ({"windows": 0}, "0 windows"),
        ({"windows": 2, "active": None}, "no place for a second"),
        ({"stages": ("prefil",)}, "unknown stage"),
        ({"stages": ("decode", "decode")}, "named twice"),
        ({"stages": ("idle",)}, "unknown stage"),
        ({"stages": ("decode",), "active": None}, "number of steps"),
        ({"stages": ("decode",), "warmup": 1}, "cannot warm up"),
        ({"ranks": ()}, "no rank"),
        ({"ranks": (-1,)}, "no rank -1"),
        ({"ranks": "some"}, "unknown ranks"),
        ({"activities": "cpu+tpu"}, "unknown activity 'tpu'"),
        ({"activities": ""}, "no activity"),
        ({"activities": "auto+gpu"}, "'auto' already says"),
        ({"activities": "cpu+nvtx"}, "at the same time"),
        ({"activities": "rpd", "with_flops": True}, "with_flops is noted by torch's profiler"),
        ({"size_limit_mb": 0}, "size limit"),
        ({"time_limit_s": 0.0}, "time limit"),
        ({"time_limit_s": float("nan")}, "time limit"),
        ({"release": "late"}, "unknown release"),
    ],
)
def test_the_reason_is_given(plan: dict[str, object], words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        RecordPlan(**plan)  # type: ignore[arg-type]
    assert caught.value.hint


def test_words_have_one_form_and_survive_a_file() -> None:
    plan = RecordPlan(activities="MEM, gpu+cpu", stages=("target-verify",), ranks=(3, 1, 3))  # type: ignore[arg-type]
    assert plan.activities == "cpu+gpu+mem"
    assert plan.stages == (Phase.TARGET_VERIFY,)
    assert plan.ranks == (1, 3)
    assert msgspec.json.decode(msgspec.json.encode(plan), type=RecordPlan) == plan


def test_ranks_are_chosen_by_number_or_by_node() -> None:
    ranks = [RankCoordinates(rank=rank, world_size=4, local_rank=rank % 2) for rank in range(4)]
    assert [RecordPlan(ranks=(0, 3)).records(rank) for rank in ranks] == [True, False, False, True]
    assert [RecordPlan(ranks="node").records(rank) for rank in ranks] == [True, False, True, False]
    with pytest.raises(UsageError, match="local rank"):
        RecordPlan(ranks="node").records(RankCoordinates(rank=1, world_size=4))


def test_a_project_file_and_the_environment_make_a_plan(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[tool.dsv4prof]\nsteps = 7\nstages = "prefill, decode"\nranks = "0,2-3"\ntime-limit-s = 2.5\n'
    )
    plan = load_plan(tmp_path, env={"DSV4PROF_STEPS": "9", "DSV4PROF_SIZE_LIMIT_MB": "0"})
    assert (plan.active, plan.stages, plan.ranks) == (9, (Phase.PREFILL, Phase.DECODE), (0, 2, 3))
    assert (plan.time_limit_s, plan.size_limit_mb, plan.release) == (2.5, None, "collect")


@pytest.mark.parametrize(("name", "value"), [("RANKS", "0,x"), ("RANKS", "0-99999999"), ("STAGES", "prefix")])
def test_a_mistyped_setting_is_refused(tmp_path: Path, name: str, value: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_plan(tmp_path, env={f"DSV4PROF_{name}": value})
    assert caught.value.hint
