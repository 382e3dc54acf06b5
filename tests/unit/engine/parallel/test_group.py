"""Two ranks over gloo: the collectives, the same logits as one rank, and a clear end when a rank is lost."""

from __future__ import annotations

import os
import socket
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import multiprocessing

from dsv4_engine.checkpoint.load import load_checkpoint
from dsv4_engine.errors import EngineError
from dsv4_engine.parallel.group import TensorParallelGroup, close, init_process_group
from dsv4_engine.parallel.groups import ParallelGroups
from engine_batches import CPU, GOLDEN, make_batch, make_runner, random_ids, run_chunks, worst


def join(rank: int, size: int, folder: str) -> TensorParallelGroup:
    torch.set_num_threads(1)
    return init_process_group(rank=rank, size=size, device=CPU, init_method=f"file://{folder}/meet", timeout_s=60.0)


def spawn(work, size: int = 2) -> list[Any]:
    """Run `work(rank, size, folder)` on ranks of their own; each saves its result as `{rank}.pt`."""
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.start_processes(work, args=(size, folder), nprocs=size, start_method="spawn")
        return [torch.load(Path(folder) / f"{rank}.pt") for rank in range(size)]


def collectives(group: TensorParallelGroup) -> torch.Tensor:
    rank = group.rank
    column = torch.full((2, 1), float(rank + 1))
    wide = torch.arange(6.0).view(2, 3).T + rank
    assert not wide.is_contiguous()
    return torch.cat((group.all_reduce(column.clone()), group.all_gather(column, 1), group.all_reduce(wide)[:2]), 1)


def generate(group: TensorParallelGroup) -> torch.Tensor:
    """Logits of a chunked prefill, a decode step, and an MTP pass over all of its rows."""
    config, weights = load_checkpoint(GOLDEN, place=ParallelGroups.tensor_parallel(group).place)
    runner, ids = make_runner(config, weights, groups=ParallelGroups.tensor_parallel(group)), random_ids(150, seed=3)
    logits = run_chunks(runner, ids, [140, 1, 9])
    output = runner.forward_target(make_batch((1, 0, ids)))
    mtp = runner.forward_mtp(make_batch((1, 0, ids.roll(-1))), output.streams)
    return torch.cat((logits, output.logits, mtp.logits))


def generate_on_rank(rank: int, size: int, folder: str) -> None:
    group = join(rank, size, folder)
    torch.save(generate(group), Path(folder) / f"{rank}.pt")
    close(group)


def work_and_lose_a_rank(rank: int, size: int, folder: str) -> None:
    """All that two ranks are to show, in one pair of processes; in the end rank 1 just leaves."""
    group = join(rank, size, folder)
    result = {"collectives": collectives(group), "logits": generate(group)}
    if rank == 0:
        with pytest.raises(EngineError, match="rank 0 lost the other ranks") as caught:
            for _ in range(100):
                group.all_reduce(torch.ones(1000))
        assert caught.value.hint
        result["lost"] = torch.ones(1)
    torch.save(result, Path(folder) / f"{rank}.pt")
    # Gloo's threads still run: an interpreter that ends in order takes them down with it, and now and then aborts.
    os._exit(0)


@pytest.fixture(scope="module")
def two_ranks() -> list[dict[str, torch.Tensor]]:
    return spawn(work_and_lose_a_rank)


@pytest.fixture(scope="module")
def single() -> torch.Tensor:
    return generate(TensorParallelGroup.single())


def test_collectives_sum_and_join_in_rank_order(two_ranks):
    expected = torch.tensor([[3.0, 1.0, 2.0, 1.0, 7.0], [3.0, 1.0, 2.0, 3.0, 9.0]])
    assert all(torch.equal(result["collectives"], expected) for result in two_ranks)


def test_two_ranks_give_the_logits_of_one(two_ranks, single):
    assert all(worst(result["logits"], single) < 1e-5 for result in two_ranks)


def test_four_ranks_give_the_logits_of_one(single):
    assert all(worst(logits, single) < 1e-5 for logits in spawn(generate_on_rank, 4))


def test_a_lost_rank_ends_the_others_with_a_sentence(two_ranks):
    assert ["lost" in result for result in two_ranks] == [True, False]


def test_one_rank_needs_no_process_group():
    group, tensor = TensorParallelGroup.single(), torch.ones(2)
    assert group.all_reduce(tensor) is tensor and group.all_gather(tensor, 0) is tensor
    close(group)


def test_a_taken_port_is_said_in_one_sentence():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(EngineError, match=f"127.0.0.1:{port}") as caught:
            init_process_group(rank=0, size=2, device=CPU, master_port=port, timeout_s=2.0)
    assert "\n" not in caught.value.message and "port" in str(caught.value.hint)
