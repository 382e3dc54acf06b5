"""However a prompt is cut, batched, drafted and rolled back: the caches give what recomputing from scratch gives."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from dsv4_engine.checkpoint.load import load_checkpoint
from dsv4_engine.phase import Phase
from engine_batches import GOLDEN, golden_runner, make_batch, make_runner, poison, random_ids, run_chunks, worst

LENGTH = 300
SAME = 2e-5
"""float32 sums of other lengths differ by a few 1e-6; a wrong key shows as 1e-2 or more."""


@pytest.fixture(scope="module")
def runner():
    return golden_runner()


@pytest.fixture(scope="module")
def prompt():
    return random_ids(LENGTH, seed=7)


@pytest.fixture(scope="module")
def full(runner, prompt):
    return runner.forward_target(make_batch((1, 0, prompt)))


@pytest.mark.parametrize("size", [5, 31, 32, 33, 64, 127, 128, 129, 257, LENGTH])
def test_any_chunk_size_equals_one_prefill(runner, prompt, full, size):
    poison(runner)
    assert worst(run_chunks(runner, prompt, [size], slot=3), full.logits) < SAME


@pytest.mark.parametrize("sizes", [(1, 2, 3, 5, 8, 13, 21, 34, 55, 89), (126, 1, 1, 1, 128, 1), (7, 121, 2, 126, 1)])
def test_uneven_chunks_equal_one_prefill(runner, prompt, full, sizes):
    poison(runner)
    assert worst(run_chunks(runner, prompt, sizes, slot=2), full.logits) < SAME


@pytest.mark.parametrize(("rows", "phase"), [(1, Phase.DECODE), (4, Phase.TARGET_VERIFY), (3, Phase.TARGET_VERIFY)])
def test_decode_and_verify_equal_one_prefill(runner, prompt, full, rows, phase):
    poison(runner)
    for start, end in ((1, 40), (100, 140), (230, 270)):
        run_chunks(runner, prompt[:start], [100])
        logits = run_chunks(runner, prompt[:end], [rows], start=start, phase=phase)
        assert worst(logits, full.logits[start:end]) < SAME


def test_a_reused_slot_shows_nothing_of_its_last_request(runner, prompt, full):
    run_chunks(runner, random_ids(390, seed=1), [50], slot=4)
    assert worst(run_chunks(runner, prompt, [90, 1, 1, 60], slot=4), full.logits) < SAME


@pytest.mark.parametrize("phase", [Phase.PREFILL, Phase.TARGET_VERIFY])
@pytest.mark.parametrize("start", [*range(118, 131), *range(244, 258), 1, 4, 29, 30, 31])
def test_rejected_rows_are_overwritten_by_the_true_ones(runner, prompt, full, start, phase):
    """As rows of a mixed step, which is a prefill, and as a verify."""
    poison(runner)
    run_chunks(runner, prompt[:start], [64])
    wrong = random_ids(4, seed=start)
    rows = []
    position = start
    for accepted in (1, 2, 1, 3, 4):
        runner.forward_target(make_batch((1, position, wrong), phase=phase))
        verified = prompt[position : position + 4].clone()
        verified[accepted:] = wrong[accepted:]
        rows.append(runner.forward_target(make_batch((1, position, verified), phase=phase)).logits[:accepted])
        position += accepted
    assert worst(torch.cat(rows), full.logits[start:position]) < SAME


@pytest.mark.parametrize(
    ("drafts", "phase"),
    [
        (1, Phase.TARGET_VERIFY),
        (2, Phase.TARGET_VERIFY),
        (5, Phase.PREFILL),
        (7, Phase.TARGET_VERIFY),
        (7, Phase.PREFILL),
    ],
)
def test_rings_are_large_enough_for_every_number_of_drafts(prompt, full, drafts, phase):
    rows = drafts + 1
    runner = golden_runner(num_draft_tokens=rows)
    poison(runner)
    for start in range(119, 130, 2):
        run_chunks(runner, prompt[:start], [200])
        runner.forward_target(make_batch((1, start, random_ids(rows, seed=start)), phase=phase))
        single = Phase.DECODE if phase is Phase.TARGET_VERIFY else phase
        logits = run_chunks(runner, prompt[: start + rows + 4], [1], start=start, phase=single)
        assert worst(logits, full.logits[start : start + rows + 4]) < SAME, start


@pytest.mark.parametrize("window", [126, 127, 128, 129, 1_000_000])
def test_a_ring_cut_to_the_context_is_large_enough(prompt, window):
    config, weights = load_checkpoint(GOLDEN)
    config = replace(config, sliding_window=window)
    full = make_runner(config, weights).forward_target(make_batch((1, 0, prompt[:128]))).logits
    runner = make_runner(config, weights, context_len=120)
    assert runner.layout.max_positions == 128 and runner.layout.window_ring == min(window + 3, 128)
    poison(runner)
    for start in (1, 60, 119, 121, 122, 123, 124):
        run_chunks(runner, prompt[:start], [128])
        runner.forward_target(make_batch((1, start, random_ids(4, seed=start)), phase=Phase.TARGET_VERIFY))
        end = min(start + 12, 128)
        assert worst(run_chunks(runner, prompt[:end], [1], start=start), full[start:end]) < SAME, start


def test_rejected_mtp_rows_are_overwritten_too(runner, prompt, full):
    shifted = torch.cat((prompt[1:], prompt[:1]))
    expected = runner.forward_mtp(make_batch((1, 0, shifted)), full.streams).logits
    poison(runner)
    start = 0
    for size in (40, 1, 3, 128, 2, 1, 50, 75):
        rows = slice(start, start + size)
        garbage = torch.randn(4, *full.streams.shape[1:], generator=torch.Generator().manual_seed(start))
        runner.forward_mtp(make_batch((1, start, random_ids(4, seed=start))), garbage)
        logits = runner.forward_mtp(make_batch((1, start, shifted[rows])), full.streams[rows]).logits
        assert worst(logits, expected[rows]) < SAME, start
        start += size


def test_a_mixed_batch_equals_its_requests_one_by_one(runner):
    prompts = [random_ids(length, seed=length) for length in (150, 260, 33, 129)]
    starts, rows = (149, 100, 0, 125), (1, 160, 33, 4)
    alone = []
    for prompt, start, count in zip(prompts, starts, rows, strict=True):
        alone.append(runner.forward_target(make_batch((1, 0, prompt))).logits[start : start + count])
    poison(runner)
    slots = (3, 1, 4, 2)
    for prompt, start, slot in zip(prompts, starts, slots, strict=True):
        if start:
            run_chunks(runner, prompt[:start], [start], slot=slot)
    parts = [(slot, start, prompt[start:]) for prompt, start, slot in zip(prompts, starts, slots, strict=True)]
    together = runner.forward_target(make_batch(*parts)).logits
    assert worst(together, torch.cat(alone)) < SAME


@pytest.mark.parametrize("phase", [Phase.PREFILL, Phase.TARGET_VERIFY])
def test_padded_rows_and_padded_requests_change_nothing(runner, prompt, full, phase):
    """Rows beyond num_tokens, and requests of slot 0: both leave others' logits and caches alone."""
    poison(runner)
    run_chunks(runner, prompt[:126], [126], slot=3)
    batch = make_batch((3, 126, prompt[126:130]), phase=phase)
    pad = torch.zeros(7, dtype=torch.int64)
    rows = replace(batch, input_ids=torch.cat((batch.input_ids, pad)), positions=torch.cat((batch.positions, pad)))
    width = torch.arange(4)
    requests = replace(
        batch,
        input_ids=torch.cat((batch.input_ids, width)),
        positions=torch.cat((batch.positions, width)),
        req_slots=torch.tensor([3, 0]),
        seq_lens=torch.tensor([130, 4]),
        extend_lens=torch.tensor([4, 4]),
        num_tokens=8,
        extend_lens_host=(4, 4),
        seq_lens_host=(130, 4),
    )
    for padded in (rows, requests):
        assert worst(runner.forward_target(padded).logits[:4], full.logits[126:130]) < SAME
        logits = run_chunks(runner, prompt[:140], [1], slot=3, start=130, phase=Phase.DECODE)
        assert worst(logits, full.logits[130:140]) < SAME
        run_chunks(runner, prompt[:126], [126], slot=3)


def test_only_the_rows_asked_for_get_logits(runner, prompt, full):
    wanted = torch.tensor([299, 0, 17])
    output = runner.forward_target(make_batch((1, 0, prompt)), logits_rows=wanted)
    assert worst(output.logits, full.logits[wanted]) < SAME
    assert output.streams.shape == full.streams.shape


def test_a_prefill_blocked_by_memory_equals_an_unblocked_one(runner, prompt, full, monkeypatch):
    monkeypatch.setattr("dsv4_engine.attention.blocks._BLOCK_ELEMENTS", 20_000)
    assert worst(runner.forward_target(make_batch((1, 0, prompt))).logits, full.logits) < SAME


def test_positions_beyond_a_slot_are_refused(runner):
    with pytest.raises(AssertionError, match="outgrew"):
        runner.forward_target(make_batch((1, 404, random_ids(5, seed=0))))
