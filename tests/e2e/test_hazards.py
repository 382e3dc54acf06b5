"""`dsv4prof hazards` as a user meets it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from child import TINY

SMALL = (*TINY, "--drafts", "1", "--max-requests", "2", "--requests", "2", "--threads", "1", "--no-gpu")


def dsv4prof(*arguments, cwd=None):
    return subprocess.run(
        [sys.executable, "-m", "dsv4prof", "hazards", *arguments],
        capture_output=True, text=True, cwd=cwd, env={**os.environ, "OMP_NUM_THREADS": "1"}, timeout=120, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    path = tmp_path_factory.mktemp("hazards") / "run.hazards.json.gz"
    faulty = ("--faults", "freed_staging", "--plan-on", "host", "--no-overlap", "--steps", "8", "-o", str(path))
    return path, dsv4prof(*faulty, *SMALL, "--format", "json")


def test_a_fault_fails_the_command_and_keeps_the_run(kept):
    path, done = kept
    report = json.loads(done.stdout)
    assert done.returncode == 1 and path.exists()
    assert {finding["code"] for finding in report["findings"]} == {"DSV203"}
    first = report["findings"][0]["evidence"]["first"]
    assert first["op"] == "a raw copy" and any("_raw_copy" in line for line in first["stack"])


def test_explain_answers_from_the_kept_run(kept):
    path, _ = kept
    done = dsv4prof("explain", "metadata.py:attach_prefill_meta", "--ran", str(path))
    assert done.returncode == 0
    assert "unsafe to remove" in done.stdout and "DSV203" in done.stdout and "output_size" in done.stdout
    again = dsv4prof("--ran", str(path), "--format", "concise")
    assert again.returncode == 1 and "DSV203" in again.stdout
    elsewhere = dsv4prof("explain", "nowhere.py:3", "--ran", str(path))
    assert elsewhere.returncode == 0 and "nothing was done at nowhere.py:3" in elsewhere.stdout


def test_what_is_wrong_is_said_in_a_sentence(tmp_path):
    for arguments, words in (
        (("explain", "metadata"), "names no place"),
        (("--device", "cpu"), "no hazards"),
        (("--page-size", "32", *SMALL), "page_size is 32"),
        (("--ran", str(tmp_path / "absent")), "cannot read"),
        (("-o", str(tmp_path / "no" / "file"), *SMALL), "cannot write"),
    ):
        done = dsv4prof(*arguments)
        assert done.returncode == 2 and words in done.stderr and "Traceback" not in done.stderr, done.stderr
        assert not done.stdout


def test_help_names_the_ways_in():
    done = dsv4prof("--help")
    assert done.returncode == 0 and "explain" in done.stdout and "hazards -- CMD" in done.stdout
    assert "--faults" in dsv4prof("engine", "--help").stdout


PROGRAM = """
import torch

def send(staging, target, rows):
    staging.fill_(rows)
    target.copy_(staging, non_blocking=True)

def serve(copied):
    staging = torch.zeros(64, dtype=torch.int64, pin_memory=True)
    target = torch.empty(64, dtype=torch.int64, device="cuda")
    for rows in range(3):
        send(staging, target, rows)
        copied.record()
        copied.synchronize()

serve(torch.cuda.Event())
"""


def test_a_program_of_others_is_watched_and_its_sync_explained(tmp_path):
    (tmp_path / "serving.py").write_text(PROGRAM)
    kept = tmp_path / "run.gz"
    watched = dsv4prof("--no-gpu", "-o", str(kept), "--", sys.executable, "serving.py", cwd=tmp_path)
    assert watched.returncode == 0 and kept.exists(), watched.stderr
    line = PROGRAM.splitlines().index("        copied.synchronize()") + 1
    explained = dsv4prof("explain", f"serving.py:{line}", "--ran", str(kept), "--format", "json", cwd=tmp_path)
    report = json.loads(explained.stdout)
    assert (report["answer"], report["safe_to_remove"]) == ("protects", False)
    assert {finding["code"] for finding in report["findings"]} == {"DSV203"}
    (tmp_path / "serving.py").write_text(PROGRAM.replace("        copied.synchronize()\n", ""))
    unsafe = dsv4prof("--no-gpu", "--format", "json", "--", sys.executable, "serving.py", cwd=tmp_path)
    assert "DSV203" in {finding["code"] for finding in json.loads(unsafe.stdout)["findings"]}
