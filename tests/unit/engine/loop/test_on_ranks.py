"""Engines on several ranks over gloo: tensor, data (attention DP) and expert parallel serve the tokens of one rank."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
import torch
from torch import multiprocessing

from dsv4_engine.parallel.group import close, init_process_group
from dsv4_engine.parallel.groups import ParallelGroups
from dsv4_engine.parallel.place import ParallelSizes
from engine_batches import CPU
from serving import make_engine, random_prompts, tokens_of

LENGTHS = [1, 33, 119, 122, 126, 250]
LIMITS = [10, 3, 12, 7, 1, 10]
FORMS = [{"num_drafts": 0}, {"num_drafts": 3}, {"num_drafts": 3, "overlap": True, "chunk_tokens": 50}]

Answers = list[tuple[tuple[int, ...], tuple[int, ...]]]


def answers(groups: ParallelGroups | None = None, *, first: int = 0, stride: int = 1) -> list[Answers]:
    """Tokens and accept lengths of every `stride`-th request, for each form of engine."""
    prompts, made = random_prompts(LENGTHS, seed=20)[first::stride], []
    for form in FORMS:
        engine = make_engine(max_requests=4, groups=groups, **form)
        ids = [
            engine.add(prompt, max_new_tokens=limit, ignore_eos=True)
            for prompt, limit in zip(prompts, LIMITS[first::stride], strict=True)
        ]
        while engine.has_work:
            engine.step()
        results = [engine.result(each) for each in ids]
        made.append(list(zip(tokens_of(results), [result.accept_lens for result in results], strict=True)))
        assert engine.flush_cache()
        assert engine.stats().free_pages == engine.stats().num_pages
    return made


def serve_on_rank(rank: int, sizes: ParallelSizes, folder: str) -> None:
    torch.set_num_threads(1)
    world = init_process_group(
        rank=rank, size=sizes.world, device=CPU, init_method=f"file://{folder}/meet", timeout_s=60.0
    )
    groups = ParallelGroups.divide(world, sizes)
    torch.save(answers(groups, first=groups.place.dp_rank, stride=sizes.dp), Path(folder) / f"{rank}.pt")
    close(world)


@pytest.fixture(scope="module")
def alone() -> list[Answers]:
    made = answers()
    assert any(gained > 1 for _, accept_lens in made[1] for gained in accept_lens)
    return made


@pytest.mark.parametrize(
    "sizes",
    [
        pytest.param(ParallelSizes(tp=2), id="TP 2, EP 2"),
        pytest.param(ParallelSizes(tp=2, ep=1), id="TP 2, experts in slices"),
        # Three requests a replica, of different lengths: one ends long before the other and takes part with padding.
        pytest.param(ParallelSizes(dp=2), id="DP 2, EP 2"),
        pytest.param(ParallelSizes(dp=2, ep=1), id="DP 2, experts in slices", marks=pytest.mark.slow),
        pytest.param(ParallelSizes(tp=2, dp=2, ep=2), id="TP 2 x DP 2, EP 2 in slices", marks=pytest.mark.slow),
    ],
)
def test_several_ranks_serve_the_tokens_of_one(sizes: ParallelSizes, alone: list[Answers]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        multiprocessing.start_processes(serve_on_rank, args=(sizes, folder), nprocs=sizes.world, start_method="spawn")
        for rank in range(sizes.world):
            replica = rank // sizes.tp
            expected = [form[replica :: sizes.dp] for form in alone]
            assert torch.load(Path(folder) / f"{rank}.pt") == expected, f"rank {rank}"
