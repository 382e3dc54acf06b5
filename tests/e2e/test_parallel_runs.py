"""Runs on several ranks as a user starts them: replicas, and two nodes of torchrun on loopback."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from child import TINY, dsv4prof

pytest.importorskip("torch")

SMALL = (*TINY, "--requests", "5", "--max-requests", "2", "--max-new-tokens", "9")


def workload(root: Path) -> dict[str, Any]:
    (folder,) = [path for path in root.iterdir() if path.is_dir()]
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["outcome"] == "complete"
    return manifest["workload"]


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("alone")
    done = dsv4prof("run", "--tp", "1", *SMALL, "--sessions-dir", "s", cwd=folder)
    assert done.status == 0, done.stderr
    return workload(folder / "s")


def test_replicas_produce_what_one_engine_does(tmp_path: Path, alone: dict[str, Any]) -> None:
    done = dsv4prof("run", "--tp", "1", "--dp", "2", *SMALL, "--sessions-dir", "s", cwd=tmp_path)
    assert done.status == 0, done.stderr
    made = workload(tmp_path / "s")
    same = ("tokens_sha256", "output_tokens", "verifies")
    assert {name: made[name] for name in same} == {name: alone[name] for name in same}
    assert made["accept_length"] == pytest.approx(alone["accept_length"])
    assert (made["dp"], made["ep"]) == (2, 2)


def test_two_nodes_of_torchrun_make_one_run(tmp_path: Path, alone: dict[str, Any]) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = ["-m", "dsv4prof", "run", "--tp", "2", *SMALL, "--sessions-dir", str(tmp_path / "s")]
    nodes = [
        subprocess.Popen(
            [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--node-rank", str(node),
             "--nproc-per-node", "1", "--master-addr", "127.0.0.1", "--master-port", str(port), *words],
            cwd=tmp_path, env={**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"},
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )
        for node in range(2)
    ]  # fmt: skip
    said = [node.communicate(timeout=120)[0] for node in nodes]
    assert [node.returncode for node in nodes] == [0, 0], said
    made = workload(tmp_path / "s")
    assert made["tokens_sha256"] == alone["tokens_sha256"]
    assert made["tp"] == 2
