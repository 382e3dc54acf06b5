"""One sentence with a hint on stderr, exit 2, nothing half-written."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from child import SMALL, TINY, Outcome, dsv4prof

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "dsv4_tiny"


def assert_refused(outcome: Outcome, *words: str) -> None:
    errors = [line for line in outcome.stderr.splitlines() if line.startswith("error: ")]
    assert outcome.status == 2, outcome.stderr
    assert len(errors) == 1, outcome.stderr
    assert re.search(r"^hint: \S", outcome.stderr, re.MULTILINE), outcome.stderr
    assert "Traceback" not in outcome.stderr
    assert "internal error" not in outcome.stderr
    assert outcome.stdout == ""
    for word in words:
        assert word in errors[0]


def sessions(folder: Path) -> list[Path]:
    root = folder / "traces" / "local"
    return sorted(root.iterdir()) if root.is_dir() else []


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    for name in ("config.json", "model.safetensors"):
        shutil.copy(GOLDEN / name, folder / name)
    return folder


def run(tmp_path: Path, *arguments: str) -> Outcome:
    return dsv4prof("run", "--profile", *SMALL, *arguments, cwd=tmp_path)


def test_unknown_model_path(tmp_path: Path) -> None:
    assert_refused(run(tmp_path, "--model", "no/such/model"), "no/such/model")
    assert sessions(tmp_path) == []


def test_config_of_another_model(tmp_path: Path, model: Path) -> None:
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(
        json.dumps({**config, "model_type": "llama", "architectures": ["LlamaForCausalLM"]})
    )
    assert_refused(run(tmp_path, "--model", str(model)), "llama")
    assert sessions(tmp_path) == []


def test_missing_shard_is_named(tmp_path: Path, model: Path) -> None:
    (model / "model.safetensors").unlink()
    index = {"weight_map": {"embed.weight": "model-00001-of-00002.safetensors"}}
    (model / "model.safetensors.index.json").write_text(json.dumps(index))
    assert_refused(run(tmp_path, "--model", str(model)), "model-00001-of-00002.safetensors")
    assert sessions(tmp_path) == []


def test_cut_shard_is_named(tmp_path: Path, model: Path) -> None:
    shard = model / "model.safetensors"
    shard.write_bytes(shard.read_bytes()[: shard.stat().st_size // 2])
    assert_refused(run(tmp_path, "--model", str(model)), "model.safetensors")
    assert sessions(tmp_path) == []


def test_prompt_over_the_context_length(tmp_path: Path) -> None:
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("x" * 500)
    assert_refused(run(tmp_path, "--prompts", str(prompts), "--context-len", "128"), "128")
    assert sessions(tmp_path) == []


@pytest.mark.parametrize("tp", ["3", "16"])
def test_ranks_that_do_not_divide_the_heads(tmp_path: Path, tp: str) -> None:
    assert_refused(run(tmp_path, "--tp", tp), tp)
    assert sessions(tmp_path) == []


def test_port_in_use(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        assert_refused(run(tmp_path, "--port", port), port)
    assert sessions(tmp_path) == []


def test_unwritable_output_is_found_before_the_run(tmp_path: Path) -> None:
    blocker = tmp_path / "file"
    blocker.write_text("")
    started = time.monotonic()
    outcome = run(tmp_path, "--sessions-dir", str(blocker / "sessions"))
    assert_refused(outcome, "sessions")
    assert "torch" not in outcome.stderr
    assert time.monotonic() - started < 30


@pytest.mark.parametrize("arguments", [["merge", "nowhere"], ["analyze", "nowhere"], ["sessions", "show", "nowhere"]])
def test_inputs_that_do_not_exist(tmp_path: Path, arguments: list[str]) -> None:
    assert_refused(dsv4prof(*arguments, cwd=tmp_path), "nowhere")


@pytest.mark.parametrize("content", [b"", b"not json", b'{"a": 1}', b"\x1f\x8b\x08\x00"])
def test_files_that_are_no_trace(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "rank0.trace.json").write_bytes(content)
    assert_refused(dsv4prof("merge", "rank0.trace.json", "-o", "out.json.gz", cwd=tmp_path), "rank0.trace.json")
    assert not (tmp_path / "out.json.gz").exists()


def start(tmp_path: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "dsv4prof", "run", "--profile", *TINY, "--tp", "2", "--requests", "4",
         "--max-new-tokens", "16", "--steps", "4000", "--format", "json"],
        cwd=tmp_path, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "OMP_NUM_THREADS": "1"}, start_new_session=True,
    )  # fmt: skip


def wait_until_recording(tmp_path: Path, child: subprocess.Popen[str]) -> Path:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        assert child.poll() is None, child.communicate()
        for folder in sessions(tmp_path):
            records = [json.loads(path.read_text()) for path in folder.glob("rank?.json")]
            if len(records) == 2 and all(record.get("windows") for record in records):
                time.sleep(0.5)
                return folder
        time.sleep(0.05)
    raise AssertionError("no rank began to record")


def test_ctrl_c_saves_first(tmp_path: Path) -> None:
    child = start(tmp_path)
    folder = wait_until_recording(tmp_path, child)
    os.killpg(child.pid, signal.SIGINT)
    _, stderr = child.communicate(timeout=60)
    assert child.returncode == 130, stderr
    manifest = json.loads((folder / "manifest.json").read_text())
    assert len(manifest["ranks"]) == 2
    steps = {rank["windows"][0]["steps"] for rank in manifest["ranks"]}
    assert len(steps) == 1, "all ranks stop after the same step"
    assert min(steps) > 0
    for rank in manifest["ranks"]:
        assert (folder / rank["windows"][0]["trace"]).stat().st_size > 1000
    merged = dsv4prof("merge", str(folder), "--allow-partial", "--format", "json", cwd=tmp_path)
    assert merged.status == 0, merged.stderr


def test_a_rank_that_dies_is_named_and_the_rest_is_kept(tmp_path: Path) -> None:
    child = start(tmp_path)
    folder = wait_until_recording(tmp_path, child)
    victim = json.loads((folder / "rank1.json").read_text())["pid"]
    os.kill(victim, signal.SIGKILL)
    _, stderr = child.communicate(timeout=60)
    assert child.returncode == 2, stderr
    assert "rank 1" in stderr
    assert "hint: " in stderr
    manifest = json.loads((folder / "manifest.json").read_text())
    by_rank = {rank["coordinates"]["rank"]: rank for rank in manifest["ranks"]}
    assert by_rank[1]["outcome"] == "incomplete"
    assert "SIGKILL" in by_rank[1]["reason"]
    assert (folder / by_rank[0]["windows"][0]["trace"]).stat().st_size > 1000, "what rank 0 recorded is kept"
