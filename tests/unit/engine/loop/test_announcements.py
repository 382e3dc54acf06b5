"""What an observer is told: steps hold phases, phases hold spans, and every verify says how many tokens it gained."""

from __future__ import annotations

import pytest

from dsv4_engine.phase import Phase
from serving import RecordingHooks, make_engine, random_prompts, run, runner_of


def record(prompts, **options):
    hooks = RecordingHooks()
    engine = make_engine(hooks=hooks, **options)
    ids = [engine.add(prompt, max_new_tokens=6, ignore_eos=True) for prompt in prompts]
    steps = []
    while engine.has_work:
        steps.append(engine.step())
    return hooks, steps, [engine.result(request) for request in ids]


def test_a_decode_step_with_mtp_is_draft_verify_extend_accepted():
    hooks, steps, _ = record(random_prompts([5, 9]), num_drafts=3)
    decode = next(step for step in steps if step.kind == "decode")
    assert hooks.inside(decode.index) == [
        ("draft", ()),
        ("build_metadata", ("draft",)),
        ("build_metadata", ("draft",)),
        ("target_verify", ()),
        ("build_metadata", ("target_verify",)),
        ("attach_prefill_meta", ("target_verify", "build_metadata")),
        ("draft_extend", ()),
        ("build_metadata", ("draft_extend",)),
        ("attach_prefill_meta", ("draft_extend", "build_metadata")),
        ("read_tokens", ()),
        ("accepted", ()),
    ]


def test_a_prefill_step_with_mtp_reads_its_first_tokens_last():
    hooks, steps, _ = record(random_prompts([5, 9]), num_drafts=3)
    assert steps[0].kind == "prefill"
    assert hooks.inside(0) == [
        ("prefill", ()),
        ("build_metadata", ("prefill",)),
        ("attach_prefill_meta", ("prefill", "build_metadata")),
        ("mtp_prefill", ("prefill",)),
        ("build_metadata", ("prefill", "mtp_prefill")),
        ("attach_prefill_meta", ("prefill", "mtp_prefill", "build_metadata")),
        ("read_tokens", ()),
    ]


def test_a_plain_decode_step_has_one_phase_and_one_read():
    hooks, steps, _ = record(random_prompts([5, 9]), num_drafts=0)
    decode = next(step for step in steps if step.kind == "decode")
    names = [name for name, _ in hooks.inside(decode.index)]
    assert names == ["decode", "build_metadata", "read_tokens"]
    assert hooks.acceptances == []


def test_a_chunk_that_ends_no_prompt_reads_nothing():
    hooks, steps, _ = record(random_prompts([40]), chunk_tokens=16)
    assert [(step.kind, step.rows) for step in steps[:3]] == [("prefill", 16), ("prefill", 16), ("prefill", 8)]
    reads = [[name for name, _ in hooks.inside(index)].count("read_tokens") for index in range(3)]
    assert reads == [0, 0, 1]
    assert steps[0].new_tokens == {} and len(steps[2].new_tokens) == 1


@pytest.mark.parametrize("num_drafts", [1, 3])
def test_announced_sizes_are_those_of_the_work(num_drafts):
    hooks, steps, _ = record(random_prompts([5, 9, 30]), num_drafts=num_drafts)
    for step, told in zip(steps, hooks.steps, strict=True):
        assert told == {"index": step.index, "kind": step.kind, "requests": step.requests, "rows": step.rows}
    verifies = [told for told in hooks.phases if told["phase"] is Phase.TARGET_VERIFY]
    assert verifies and all(told["rows"] == told["requests"] * (num_drafts + 1) for told in verifies)
    drafts = [told for told in hooks.phases if told["phase"] is Phase.DRAFT]
    assert len(drafts) == (len(verifies) if num_drafts > 1 else 0)
    assert all(told["rows"] == told["requests"] * (num_drafts - 1) for told in drafts)


def test_accepted_markers_add_up_to_the_accept_lengths():
    hooks, steps, results = record(random_prompts([5, 9, 130]))
    decodes = [step for step in steps if step.kind == "decode"]
    assert hooks.acceptances == [(step.requests, sum(step.accept_lens)) for step in decodes]
    gained = sum(sum(result.accept_lens) for result in results)
    assert sum(tokens for _, tokens in hooks.acceptances) == gained


def test_every_phase_says_why_it_runs_eagerly():
    hooks, _, _ = record(random_prompts([5]))
    assert {told["phase"] for told in hooks.phases} == {
        Phase.PREFILL, Phase.DRAFT, Phase.TARGET_VERIFY, Phase.DRAFT_EXTEND,
    }  # fmt: skip
    assert {told["captured"] for told in hooks.phases} == {False}
    assert all(told["reason"].startswith("eager: ") for told in hooks.phases)


def test_equal_keys_mean_equal_work():
    _, steps, _ = record(random_prompts([20, 20, 125]), num_drafts=0, chunk_tokens=200)
    by_key: dict[str, set[tuple[str, int, int]]] = {}
    for step in steps:
        by_key.setdefault(step.key, set()).add((step.kind, step.requests, step.rows))
    assert all(len(work) == 1 for work in by_key.values())
    # 125 tokens and 6 more cross a length class of 128, so the decode steps have two keys.
    assert len({step.key for step in steps if step.kind == "decode"}) == 2


def test_a_failing_phase_still_closes_its_step():
    hooks = RecordingHooks()
    engine = make_engine(hooks=hooks)
    engine.add([1, 2, 3], max_new_tokens=2)

    def fail(*_args, **_kwargs):
        assert hooks.open == ("step 0", "prefill", "mtp_prefill")
        raise RuntimeError("lost")

    runner_of(engine).mtp = fail
    with pytest.raises(RuntimeError, match="lost"):
        engine.step()
    assert hooks.open == ()


def test_without_hooks_the_results_are_the_same():
    prompts = random_prompts([5, 60])
    _, _, results = record(prompts)
    assert [r.tokens for r in run(make_engine(), prompts, max_new_tokens=6)] == [r.tokens for r in results]
