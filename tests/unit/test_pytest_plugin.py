"""The pytest plugin, as a project that uses it meets it: a run of pytest of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

pytest.importorskip("torch")

TESTS = """
import pytest, torch
from dsv4prof.sync.runtime.watch import allow_syncs, region


@pytest.fixture
def lens():
    return torch.tensor([1, 2, 3], device="cuda")


@pytest.mark.max_syncs(0)
def test_clean(lens):
    assert (lens + 1).device.type == "cuda"


@pytest.mark.max_syncs(0)
def test_reads(lens):
    total = lens.sum().item()


@pytest.mark.max_syncs(2)
def test_within(lens):
    torch.repeat_interleave(lens, lens)


@pytest.mark.max_syncs(0, region="build")
def test_one_region_alone(lens):
    lens.tolist()
    with region("build"):
        lens + 1


@pytest.mark.max_syncs(0, region="build")
def test_the_region_reads(lens):
    with region("build"):
        lens.tolist()


@pytest.mark.max_syncs(0)
def test_intended(lens):
    with allow_syncs("tokens decide"):
        lens.tolist()


@pytest.mark.max_syncs(0, gpu=True)
def test_for_a_gpu(lens):
    lens.tolist()


def test_plain():
    assert not torch.cuda.is_available()


def test_fixture(sync_watch):
    torch.ones(3, device="cuda").sum().item()  # one read
    assert sync_watch.syncs == 1


@pytest.mark.max_syncs(0)
def test_its_own_failure_comes_first(lens):
    lens.tolist()
    assert False, "mine"
"""


def ran(folder: Path, text: str, *options: str) -> tuple[int, str]:
    (folder / "test_sample.py").write_text(text)
    # An installed package brings the plugin along.
    brought = any(point.value == "dsv4prof._pytest" for point in entry_points(group="pytest11"))
    plugin = [] if brought else ["-p", "dsv4prof._pytest"]
    child = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:cacheprovider", *plugin, *options, "test_sample.py"],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    return child.returncode, child.stdout + child.stderr


def test_marked_tests_run_without_a_gpu_and_fail_by_their_syncs(tmp_path: Path) -> None:
    code, said = ran(tmp_path, TESTS)
    assert code == 1, said
    outcomes = {
        line.split("::")[1].split()[0]: line.split()[0]
        for line in said.splitlines()
        if line.startswith(("PASSED", "FAILED", "ERROR"))
    }
    assert outcomes == {
        "test_clean": "PASSED",
        "test_reads": "FAILED",
        "test_within": "PASSED",
        "test_one_region_alone": "PASSED",
        "test_the_region_reads": "FAILED",
        "test_intended": "PASSED",
        "test_plain": "PASSED",
        "test_fixture": "PASSED",
        "test_its_own_failure_comes_first": "FAILED",
    }, said
    assert "1 host sync, and 0 are allowed" in said
    assert "test_sample.py:18: in test_reads" in said
    assert "1 host sync in region build, and 0 are allowed" in said
    assert "AssertionError: mine" in said
    assert "1 skipped" in said


@pytest.mark.parametrize("mark", ["max_syncs()", "max_syncs('1')", "max_syncs(0, vendor=3)", "max_syncs(0, on=1)"])
def test_a_mark_that_makes_no_sense_is_a_usage_error(mark: str, tmp_path: Path) -> None:
    code, said = ran(tmp_path, f"import pytest\n@pytest.mark.{mark}\ndef test_one():\n    pass\n")
    assert code == 4
    assert "max_syncs takes one number" in said


def test_such_a_mark_fails_its_test_alone_in_a_worker_of_xdist(tmp_path: Path) -> None:
    pytest.importorskip("xdist")
    text = "import pytest\n@pytest.mark.max_syncs()\ndef test_one():\n    pass\ndef test_other():\n    pass\n"
    code, said = ran(tmp_path, text, "-n", "1")
    assert code == 1, said
    assert "1 passed, 1 error" in said
    assert "max_syncs takes one number" in said


def test_loading_the_plugin_imports_nothing_heavy(tmp_path: Path) -> None:
    text = "import sys\ndef test_one():\n    assert not {'torch', 'msgspec'} & set(sys.modules)\n"
    code, said = ran(tmp_path, text)
    assert code == 0, said
