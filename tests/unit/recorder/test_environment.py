"""Advice is given where it is due, and only there: versions are numbers, and CUPTI is no matter of HIP."""

from __future__ import annotations

import json
import types
from pathlib import Path
from typing import Any

import pytest

from dsv4prof.recorder.environment import _rocm_version, advise, advise_here, advise_on_records

HOOKS = {"TEARDOWN_CUPTI": "0", "DISABLE_CUPTI_LAZY_REINIT": "1"}


def codes(**facts: Any) -> list[str]:
    given = {"cuda": None, "hip": None, "cuda_graphs": True, "sessions_planned": 2, "env": {}, **facts}
    return [advice.code for advice in advise(**given)]


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"cuda": "12.4"}, ["cupti-graphs"]),
        ({"cuda": "12.5.82"}, ["cupti-graphs"]),
        ({"cuda": "12.6"}, []),
        ({"cuda": "12.10"}, []),
        ({"cuda": "12.8"}, []),
        ({"cuda": "12.4", "sessions_planned": 1}, []),
        ({"cuda": "11.8", "cuda_graphs": False, "sessions_planned": 5}, []),
        ({"cuda": "12.8", "sessions_planned": 1, "env": HOOKS}, ["cupti-hooks-stay"]),
        ({"cuda": "12.8", "env": {"TEARDOWN_CUPTI": "1"}}, []),
        ({"hip": "7.2.1"}, ["rocm-partial-kernels"]),
        ({"hip": "7.2.1-43"}, ["rocm-partial-kernels"]),
        ({"hip": "7.2.53211-e1a6bc5663"}, ["rocm-partial-kernels"]),
        ({"hip": "7.2.1", "env": HOOKS}, ["rocm-partial-kernels"]),
        ({"hip": "7.2.2"}, []),
        ({"hip": "7.2.10"}, []),
        ({"hip": "7.2.0"}, []),
        ({"hip": "6.2.1"}, []),
        ({"cuda": "unknown"}, []),
        ({"hip": ""}, []),
        ({"hip": "rocm"}, []),
        ({}, []),
    ],
    ids=str,
)
def test_each_fault_is_told_where_it_is(facts: dict[str, Any], expected: list[str]) -> None:
    assert codes(**facts) == expected


def test_the_hooks_that_stay_are_named_with_what_they_cost_and_whence() -> None:
    (advice,) = advise(cuda="12.8", hip=None, cuda_graphs=True, sessions_planned=1, env=HOOKS)
    assert "TEARDOWN_CUPTI=0 and DISABLE_CUPTI_LAZY_REINIT=1" in advice.message
    assert "slow serving" in advice.message
    assert "earlier recording" in advice.message


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"cuda": "12.8"}, ["cupti-first-kernels"]),
        ({"cuda": "12.8", "warmup": 1}, []),
        ({"cuda": "13.0"}, ["cupti-first-kernels"]),
        ({"cuda": "13.1"}, []),
        ({"cuda": "13.10"}, []),
        ({"cuda": "x"}, []),
        ({"hip": "7.2.2"}, ["rocm-early-setup"]),
        ({}, []),
    ],
    ids=str,
)
def test_what_may_be_missing_from_a_gpu_recording(facts: dict[str, Any], expected: list[str]) -> None:
    assert [advice.code for advice in advise_on_records(**{"cuda": None, "hip": None, **facts})] == expected


def test_rocms_own_version_goes_before_hips(tmp_path: Path) -> None:
    (tmp_path / ".info").mkdir()
    (tmp_path / ".info" / "version").write_text("7.2.1-43\n")
    torch = types.SimpleNamespace(version=types.SimpleNamespace(hip="7.2.53211"))
    assert _rocm_version(torch, {"ROCM_PATH": str(tmp_path)}) == "7.2.1-43"
    assert _rocm_version(torch, {"ROCM_PATH": str(tmp_path / "absent")}) == "7.2.53211"
    torch.version.rocm = "7.2.2"
    assert _rocm_version(torch, {"ROCM_PATH": str(tmp_path)}) == "7.2.2"
    torch.version.hip = None
    assert _rocm_version(torch, {}) is None


def test_this_process_asks_its_own_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert advise_here(cuda_graphs=True, sessions_planned=2) == []
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.version, "cuda", "12.4")
    monkeypatch.setattr(torch.version, "hip", None)
    told = [advice.code for advice in advise_here(cuda_graphs=True, sessions_planned=2)]
    assert told == ["cupti-graphs", "cupti-first-kernels"]


def test_the_reported_cases(shared: Path) -> None:
    """Case 38 of the reference material."""
    cases = json.loads((shared / "cases" / "38-graph-plus-cupti-teardown" / "env_cases.json").read_text())
    told = {case.pop("id"): codes(**case) for case in cases}
    assert told == {
        "a": ["cupti-graphs"], "b": [], "c": ["cupti-hooks-stay"], "d": ["rocm-partial-kernels"], "e": [],
    }  # fmt: skip
