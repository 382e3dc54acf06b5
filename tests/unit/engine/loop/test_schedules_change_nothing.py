"""The golden model under every schedule: chunks, batches, mixed steps, overlap, retraction, withdrawal."""

from __future__ import annotations

import pytest
from torch.profiler import ProfilerActivity, profile, record_function

from dsv4_engine.hooks import NullHooks
from dsv4_engine.request import FinishReason, SamplingParams
from engine_batches import poison
from serving import RecordingHooks, make_engine, random_prompts, run, runner_of, serve, tokens_of

LENGTHS = [1, 5, 33, 120, 126, 127, 250]
SCHEDULES = {
    "overlap": {"overlap": True},
    "overlap, chunks of 7": {"overlap": True, "chunk_tokens": 7},
    "mixed": {"mixed": True, "max_requests": 3},
    "mixed, overlap": {"mixed": True, "overlap": True, "max_requests": 3, "chunk_tokens": 50},
    "pages of 128, overlap": {"page_size": 128, "overlap": True},
    "graphs, overlap": {"graphs": True, "overlap": True},
    "host plans": {"plan_on": "host"},
}


@pytest.fixture(scope="module")
def plain():
    prompts = random_prompts(LENGTHS, seed=40)
    return prompts, tokens_of([serve([prompt], num_drafts=0, chunk_tokens=400)[0] for prompt in prompts])


@pytest.mark.parametrize(
    ("schedule", "num_drafts"), [*((name, 3) for name in SCHEDULES), ("overlap", 0), ("mixed, overlap", 0)]
)
def test_each_request_gets_the_tokens_it_gets_alone(plain, schedule, num_drafts):
    prompts, expected = plain
    engine = make_engine(num_drafts=num_drafts, **SCHEDULES[schedule])
    poison(runner_of(engine))
    assert tokens_of(run(engine, prompts)) == expected
    assert engine.flush_cache() and engine.stats().free_pages == engine.stats().num_pages


@pytest.mark.parametrize(
    "options",
    [
        {"radix": False, "num_drafts": 0},
        {},
        {"overlap": True},
        {"overlap": True, "mixed": True},
    ],
)
def test_retraction_mid_stream_equals_an_uninterrupted_run(options):
    prompts = random_prompts([110, 115, 120], seed=41)
    expected = tokens_of(serve(prompts, num_drafts=0, max_new_tokens=30))
    engine = make_engine(page_size=128, num_pages=4, chunk_tokens=200, **options)
    poison(runner_of(engine))
    engine._scheduler._reserve = lambda: 0  # all are admitted, and there is no page for two of them to grow
    results = run(engine, prompts, max_new_tokens=30)
    assert engine.stats().retracted > 0
    assert tokens_of(results) == expected
    assert engine.flush_cache() and engine.stats().free_pages == 4


@pytest.mark.parametrize("overlap", [False, True])
def test_end_tokens_with_drafts_and_overlap(plain, overlap):
    prompts, tokens = plain
    stop = tokens[3][4]
    expected = [tuple(row[: row.index(stop) + 1] if stop in row else row) for row in tokens]
    engine = make_engine(overlap=overlap)
    ids = [engine.add(prompt, max_new_tokens=12, ignore_eos=True, stop_ids=[stop]) for prompt in prompts]
    while engine.has_work:
        engine.step()
    results = [engine.result(request) for request in ids]
    assert tokens_of(results) == expected and results[3].finish_reason is FinishReason.STOP


def test_sampled_requests_do_not_depend_on_the_schedule():
    prompts = random_prompts([5, 60, 126], seed=42)
    outcomes = []
    for options in ({"max_requests": 1}, {"overlap": True, "num_drafts": 3}, {"mixed": True, "chunk_tokens": 9}):
        engine = make_engine(**{"num_drafts": 0} | options)
        ids = [
            engine.add(prompt, max_new_tokens=10, ignore_eos=True, sampling=SamplingParams(temperature=1.0, top_p=0.9))
            for prompt in prompts
        ]
        while engine.has_work:
            engine.step()
        outcomes.append(tokens_of([engine.result(request) for request in ids]))
    assert outcomes[0] == outcomes[1] == outcomes[2]
    assert outcomes[0] != tokens_of(serve(prompts, max_new_tokens=10)), "nothing was drawn"


@pytest.mark.parametrize("overlap", [False, True])
def test_withdrawn_requests_disturb_nobody(plain, overlap):
    prompts, expected = plain
    engine = make_engine(overlap=overlap, chunk_tokens=30, max_requests=4)
    poison(runner_of(engine))
    ids = [engine.add(prompt, max_new_tokens=12, ignore_eos=True) for prompt in prompts]
    step, withdrawn = 0, {1: 2, 3: 6, 5: 9, 6: 0}  # request -> steps before it is withdrawn
    while engine.has_work:
        for index, when in withdrawn.items():
            if when == step:
                assert engine.abort(ids[index])
        engine.step()
        step += 1
    for index, request in enumerate(ids):
        result = engine.result(request)
        if index in withdrawn:
            assert result.finish_reason is FinishReason.ABORT
            assert result.tokens == expected[index][: len(result.tokens)]
        else:
            assert result.tokens == expected[index]
    assert engine.num_free_slots == 4 and engine.flush_cache()
    assert engine.stats().free_pages == engine.stats().num_pages and engine.stats().aborted == 4


NAMES = {"prefill", "draft", "target_verify", "draft_extend", "read_tokens"}


class TraceHooks(NullHooks):
    """Names steps, phases and spans in a profiler's trace."""

    def step(self, index, *, kind, requests, rows):
        return record_function(f"step {index}")

    def phase(self, phase, *, requests, rows, captured, reason):
        return record_function(phase.value)

    def span(self, name):
        return record_function(name)


def test_the_recorded_trace_shows_each_step_launched_before_the_one_before_it_is_read():
    engine = make_engine(hooks=TraceHooks(), overlap=True, num_drafts=3)
    for prompt in random_prompts([5, 9], seed=43):
        engine.add(prompt, max_new_tokens=6, ignore_eos=True)
    with profile(activities=[ProfilerActivity.CPU]) as recorded:
        while engine.has_work:
            engine.step()
    named = [
        event
        for event in recorded.profiler.kineto_results.events()
        if event.name() in NAMES or event.name()[:5] == "step "
    ]
    times = [(event.name(), event.start_ns(), event.end_ns()) for event in named]
    steps = sorted((start, end) for name, start, end in times if name.startswith("step "))
    reads = sorted((start, end) for name, start, end in times if name == "read_tokens")
    work = [(start, end) for name, start, end in times if name in NAMES - {"read_tokens"}]
    assert len(reads) == len(steps) == engine.stats().steps > 3
    for number, (begin, finish) in enumerate(steps[1:], start=1):
        read = reads[number - 1]
        assert begin < read[0] and read[1] <= finish, "step n + 1's span holds the read of step n"
        launched = [part for part in work if begin <= part[0] and part[1] <= finish]
        assert launched and all(part[1] <= read[0] for part in launched)
        assert finish <= reads[number][0], "and not its own"
    assert reads[-1][0] >= steps[-1][1]


def test_with_overlap_the_hooks_see_the_same_order():
    hooks = RecordingHooks()
    engine = make_engine(hooks=hooks, overlap=True, num_drafts=0)
    engine.add([1, 2, 3], max_new_tokens=3, ignore_eos=True)
    made = []
    while engine.has_work:
        made.append(engine.step())
    assert [(step.index, step.kind) for step in made] == [(0, "prefill"), (1, "decode"), (2, "decode")]
    order = [name for name, _ in hooks.entered if name.startswith("step") or name == "read_tokens"]
    assert order == ["step 0", "step 1", "read_tokens", "step 2", "read_tokens", "read_tokens"]
