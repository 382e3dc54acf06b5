"""Continuing a prefix from pages and a snapshot gives what computing it gives, bit for bit."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate, pairwise

import pytest
import torch

from dsv4_engine.checkpoint.load import load_checkpoint
from dsv4_engine.errors import EngineError
from dsv4_engine.phase import Phase
from dsv4_engine.plan import TableWrite, TailLoad, TailSave
from engine_batches import GOLDEN, golden_runner, make_batch, make_runner, poison, random_ids, worst

PAGE = 128
COLUMNS = 4


def pages_of(slot: int, *pages: int) -> list[TableWrite]:
    return [TableWrite(slot=slot, column=column, page=page) for column, page in enumerate(pages)]


def tail_runner(rows: int = 4, **options):
    options = {
        "page_size": PAGE,
        "num_pages": 30,
        "num_tails": 5,
        "own_pages": False,
        "num_draft_tokens": rows,
    } | options
    runner = golden_runner(**options)
    assert runner.layout.pages_per_request == COLUMNS
    poison(runner)
    return runner


def forward(runner, slot: int, start: int, ids: torch.Tensor, shifted: torch.Tensor, *, saves=(), phase=Phase.PREFILL):
    """Target and MTP logits and streams of rows `start` and on."""
    batch = make_batch((slot, start, ids), tail_saves=saves, max_seq_len=400, phase=phase)
    output = runner.forward_target(batch)
    mtp_phase = Phase.DRAFT_EXTEND if phase is Phase.TARGET_VERIFY else phase
    own = runner.forward_mtp(replace(batch, input_ids=shifted, phase=mtp_phase), output.streams)
    return output, own


def continued(runner, slot: int, start: int, ids: torch.Tensor) -> list[torch.Tensor]:
    """Everything that a prefill of the rest and then verified windows give."""
    results, at = [], start
    for size, phase in ((70, Phase.PREFILL), *[(4, Phase.TARGET_VERIFY)] * 5):
        rows = slice(at, at + size)
        output, own = forward(runner, slot, at, ids[rows], ids[at + 1 : at + size + 1], phase=phase)
        results += [output.logits, output.streams, own.logits, own.streams]
        at += size
    assert at < len(ids)
    return results


def disturb(runner, slot: int) -> None:
    """Another request through the same slot, long enough to overwrite all of its rings."""
    runner.apply(pages_of(slot, 20, 21, 22, 23))
    forward(runner, slot, 0, random_ids(390, seed=77), random_ids(390, seed=78))


@pytest.mark.parametrize(
    ("boundary", "chunks"),
    [(PAGE, (300,)), (2 * PAGE, (127, 2, 126, 45)), (PAGE, (1, 40, 87, 128)), (2 * PAGE, (120, 8, 120, 8, 10)),
     (PAGE, (256, 1)), (2 * PAGE, (256, 1))],
)  # fmt: skip
def test_a_prefix_saved_during_prefill_continues_like_a_cold_run(boundary, chunks):
    """Bit for bit where a chunk ends at the boundary, as then both compute products of the same sizes."""
    ids, runner = random_ids(400, seed=5), tail_runner()
    runner.apply(pages_of(1, 3, 9, 4, 12))
    start = 0
    for size in chunks:
        inside = [
            TailSave(slot=1, boundary=at, tail=at // PAGE) for at in (PAGE, 2 * PAGE) if start < at <= start + size
        ]
        forward(runner, 1, start, ids[start : start + size], ids[start + 1 : start + size + 1], saves=inside)
        start += size
    disturb(runner, 1)
    cuts = [0, *accumulate(chunks)]
    same = boundary in cuts
    cold_cuts = cuts[: cuts.index(boundary) + 1] if same else [0, boundary]
    check_continuation(runner, ids, cold_cuts, tail=boundary // PAGE, tolerance=0 if same else 2e-5)


def check_continuation(runner, ids: torch.Tensor, cuts: list[int], *, tail: int, tolerance: float) -> None:
    """A cold request computes the prefix itself and goes on; a warm one in another slot starts from the snapshot."""
    runner.apply(pages_of(2, 5, 6, 7, 8))
    for start, end in pairwise(cuts):
        forward(runner, 2, start, ids[start:end], ids[start + 1 : end + 1])
    boundary = cuts[-1]
    cold = continued(runner, 2, boundary, ids)
    shared = (3, 9)[: boundary // PAGE]
    own = (14, 15, 16, 17)[: COLUMNS - len(shared)]
    disturb(runner, 3)
    runner.apply(pages_of(3, *shared, *own))
    runner.load_tails([TailLoad(slot=3, boundary=boundary, tail=tail)])
    warm = continued(runner, 3, boundary, ids)
    for index, (actual, expected) in enumerate(zip(warm, cold, strict=True)):
        assert (actual - expected).abs().max() <= tolerance, index  # NaN fails as well


@pytest.mark.parametrize("rows", range(1, 9))
def test_a_prefix_ended_by_any_decode_step_is_kept_as_one_ended_by_prefill(rows):
    """Every step that can commit the boundary, with all of its rows accepted or just enough: the rings that the
    snapshot is copied from hold rejected rows too, and never lack a row."""
    ids, boundary, runner = random_ids(400, seed=5), 2 * PAGE, tail_runner(rows)
    runner.apply(pages_of(1, 3, 9, 4, 12) + pages_of(2, 5, 6, 7, 8))
    saves = [TailSave(slot=2, boundary=boundary, tail=5)]
    forward(runner, 2, 0, ids[: boundary + 5], ids[1 : boundary + 6], saves=saves)
    first, width = boundary - rows, torch.arange(rows)
    forward(runner, 1, 0, ids[:first], ids[1 : first + 1])
    for start in range(first, boundary):
        for accepted in (boundary - start, rows):
            window = torch.where(width < accepted, ids[start : start + rows], (ids[start : start + rows] + 7) % 320)
            shifted = torch.where(width < accepted, ids[start + 1 : start + rows + 1], 3)
            forward(runner, 1, start, window, shifted, phase=Phase.TARGET_VERIFY)
            for pool in runner.layer_pools:
                pool.tail.window[4] = float("nan")
            save(runner, 1, boundary, 4, start, start + accepted)
            assert furthest(runner, 4, 5) < 2e-5, (start, accepted)


def furthest(runner, tail: int, other: int) -> float:
    """Largest difference between two snapshots, infinite where one is not a number."""
    snapshots = [each for pool in runner.layer_pools for each in vars(pool.tail).values() if each is not None]
    return max(worst(each[tail], each[other]) for each in snapshots)


def save(runner, slot: int, boundary: int, tail: int, start: int, end: int) -> None:
    runner.save_tails(*(torch.tensor([value]) for value in (slot, boundary, tail, start, end)))


def test_a_decode_step_that_does_not_commit_the_boundary_leaves_the_tail():
    ids, runner = random_ids(400, seed=5), tail_runner()
    runner.apply(pages_of(1, 3, 9, 4, 12))
    forward(runner, 1, 0, ids[:254], ids[1:255])
    forward(runner, 1, 254, ids[254:258], ids[255:259], phase=Phase.TARGET_VERIFY)
    before = [pool.tail.window[1:].clone() for pool in runner.layer_pools]
    for start, end, boundary in ((254, 255, 256), (256, 260, 256), (254, 258, 128), (254, 258, 0)):
        save(runner, 1, boundary, 4, start, end)
        for pool, old in zip(runner.layer_pools, before, strict=True):
            assert torch.equal(pool.tail.window[1:].nan_to_num(), old.nan_to_num())
    save(runner, 1, 256, 4, 254, 256)
    assert all(torch.isfinite(pool.tail.window[4]).all() for pool in runner.layer_pools)


@pytest.mark.parametrize(("start", "size", "boundary"), [(0, 127, 128), (128, 40, 128), (129, 127, 128), (0, 90, 256)])
def test_a_prefill_that_does_not_reach_the_boundary_leaves_the_tail(start, size, boundary):
    ids, runner = random_ids(400, seed=5), tail_runner()
    runner.apply(pages_of(1, 3, 9, 4, 12))
    if start:
        forward(runner, 1, 0, ids[:start], ids[1 : start + 1])
    saves = [TailSave(slot=1, boundary=boundary, tail=2)]
    forward(runner, 1, start, ids[start : start + size], ids[start : start + size], saves=saves)
    assert all(pool.tail.window[2].isnan().all() for pool in runner.layer_pools)


def test_many_requests_save_and_load_at_once():
    ids, runner = random_ids(400, seed=5), tail_runner()
    others = [random_ids(400, seed=seed) for seed in (6, 7)]
    for slot, pages in ((1, (3, 9, 4, 12)), (2, (10, 11, 13, 18)), (3, (24, 25, 26, 27))):
        runner.apply(pages_of(slot, *pages))
    prompts = ((1, ids), (2, others[0]), (3, others[1]))
    saves = [TailSave(slot=3, boundary=128, tail=3), TailSave(slot=1, boundary=256, tail=1),
             TailSave(slot=1, boundary=128, tail=2)]  # fmt: skip
    batch = make_batch(*((slot, 0, prompt[:300]) for slot, prompt in prompts), tail_saves=saves)
    output = runner.forward_target(batch)
    shifted = torch.cat([prompt[1:301] for _, prompt in prompts])
    runner.forward_mtp(replace(batch, input_ids=shifted), output.streams)
    for tail, slot, boundary in ((3, 4, 128), (1, 1, 256)):
        prompt = {3: others[1], 1: ids}[tail]
        runner.apply(pages_of(4, *((24,) if tail == 3 else (3, 9)), 19, 28))
        if slot == 1:
            disturb(runner, slot)
        runner.load_tails([TailLoad(slot=4, boundary=boundary, tail=tail)])
        warm = forward(runner, 4, boundary, prompt[boundary : boundary + 9], prompt[boundary + 1 : boundary + 10])
        runner.apply(pages_of(2, 10, 11, 13, 18))
        forward(runner, 2, 0, prompt[:boundary], prompt[1 : boundary + 1])
        cold = forward(runner, 2, boundary, prompt[boundary : boundary + 9], prompt[boundary + 1 : boundary + 10])
        for actual, expected in zip(warm, cold, strict=True):
            assert (actual.logits - expected.logits).abs().max() < 2e-5


def test_a_window_longer_than_the_prefix_is_kept_as_far_as_it_goes():
    config, weights = load_checkpoint(GOLDEN)
    config, ids = replace(config, sliding_window=300), random_ids(400, seed=5)
    runner = make_runner(config, weights, page_size=PAGE, num_tails=1)
    poison(runner)
    runner.forward_target(make_batch((1, 0, ids[:128]), tail_saves=[TailSave(slot=1, boundary=128, tail=1)]))
    expected = runner.forward_target(make_batch((1, 128, ids[128:390]))).logits
    runner.apply([TableWrite(slot=2, column=0, page=1)])
    runner.load_tails([TailLoad(slot=2, boundary=128, tail=1)])
    assert torch.equal(runner.forward_target(make_batch((2, 128, ids[128:390]))).logits, expected)


def test_tails_that_are_not_kept_are_refused_and_no_loads_cost_nothing():
    runner = golden_runner()
    runner.load_tails([])
    with pytest.raises(EngineError, match="no tails are kept"):
        runner.load_tails([TailLoad(slot=1, boundary=256, tail=1)])
    with pytest.raises(EngineError, match="no tails are kept"):
        save(runner, 1, 256, 1, 255, 256)
