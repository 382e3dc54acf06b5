"""Two ranks that share the model serve the tokens of one, drafts and accept lengths included."""

from __future__ import annotations

import tempfile
from pathlib import Path

import torch
from torch import multiprocessing

from dsv4_engine.parallel.group import TensorParallelGroup, close, init_process_group
from engine_batches import CPU
from serving import random_prompts, serve

LENGTHS = [1, 33, 119, 122, 126, 250]


def answers(group: TensorParallelGroup | None = None) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Tokens and accept lengths, plain and with drafts."""
    prompts, results = random_prompts(LENGTHS, seed=20), []
    for num_drafts in (0, 3):
        results += serve(prompts, num_drafts=num_drafts, max_new_tokens=10, max_requests=4, group=group)
    return [(result.tokens, result.accept_lens) for result in results]


def answer_on_rank(rank: int, size: int, folder: str) -> None:
    torch.set_num_threads(1)
    group = init_process_group(rank=rank, size=size, device=CPU, init_method=f"file://{folder}/meet", timeout_s=60.0)
    torch.save(answers(group), Path(folder) / f"{rank}.pt")
    close(group)


def test_two_ranks_serve_the_tokens_of_one():
    alone = answers()
    assert any(gained > 1 for _, accept_lens in alone for gained in accept_lens)
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.start_processes(answer_on_rank, args=(2, folder), nprocs=2, start_method="spawn")
        for rank in range(2):
            assert torch.load(Path(folder) / f"{rank}.pt") == alone
