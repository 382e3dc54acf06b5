"""`nccl` on a shadow device: gloo carries the values, and what waits with NCCL is told."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import distributed as dist

from dsv4prof.model.syncs import Observation
from dsv4prof.sync.runtime.shadow import ShadowDevice

if not dist.is_available():
    pytest.skip("this torch has no distributed package", allow_module_level=True)

RANK = """
import sys, torch
from torch import distributed as dist
from dsv4prof.sync.runtime.shadow import ShadowDevice
rank, store = int(sys.argv[1]), sys.argv[2]
torch.set_num_threads(1)
with ShadowDevice("cuda", lambda _: None, devices=2):
    torch.cuda.set_device(rank)
    dist.init_process_group("nccl", init_method=f"file://{store}", rank=rank, world_size=2)
    x = torch.arange(2.0, device="cuda") + rank
    dist.all_reduce(x)
    gathered = [torch.empty_like(x) for _ in range(2)]
    dist.all_gather(gathered, x * (rank + 1))
    print(x.tolist(), [one.tolist() for one in gathered], x.device)
    dist.destroy_process_group()
"""


def test_what_waits_with_nccl() -> None:
    seen: list[Observation] = []
    init = dist.init_process_group
    with ShadowDevice("cuda", seen.append):
        dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
        try:
            x, y = torch.ones(4, device="cuda"), torch.empty(4, device="cuda")
            dist.all_reduce(x)
            dist.all_reduce(x, async_op=True).wait()
            dist.broadcast(x, 0)
            dist.all_gather([y], x)
            dist.barrier(async_op=True).wait()
            assert [one for one in seen if one.kind.waits] == []
            assert dist.get_backend() == "nccl"
            dist.barrier()
            assert [one.form for one in seen] == ["dist-barrier"]
            objects: list[object] = [None]
            dist.all_gather_object(objects, {"a": 1})
            assert objects == [{"a": 1}]
            assert len([one for one in seen if one.kind.waits]) >= 3
            assert y.tolist() == [1, 1, 1, 1]
        finally:
            dist.destroy_process_group()
    assert dist.init_process_group is init


def test_two_ranks_exchange_values(tmp_path: Path) -> None:
    script = tmp_path / "rank.py"
    script.write_text(RANK)
    command = [sys.executable, str(script)]
    env = {**os.environ, "OMP_NUM_THREADS": "1"}
    ranks = [
        subprocess.Popen([*command, str(rank), str(tmp_path / "store")], stdout=subprocess.PIPE, text=True, env=env)
        for rank in range(2)
    ]
    said = [one.communicate(timeout=120)[0].strip() for one in ranks]
    assert said == [f"[1.0, 3.0] [[1.0, 3.0], [2.0, 6.0]] cuda:{rank}" for rank in range(2)]
