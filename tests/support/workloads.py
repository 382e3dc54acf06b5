"""Random workloads for the loop without a model: who comes when with what, and what each must be answered."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from dsv4_engine.errors import EngineError
from dsv4_engine.request import FinishReason
from fake_launcher import VOCAB, continuation
from fake_loop import FakeLoop

PREFIXES = [(1, 2, 3, 4, 5, 6, 0, 1, 2, 3, 4, 5, 6), (1, 2, 3, 4, 5, 6, 0, 1, 0, 0), (3,), ()]


@dataclass(frozen=True)
class Arrival:
    """after: steps after which it comes. abort: steps after its arrival when it is withdrawn."""

    prompt: tuple[int, ...]
    max_output: int
    stop: frozenset[int]
    priority: int
    after: int
    abort: int | None

    def expected(self):
        tokens = continuation(self.prompt, self.max_output)
        end = next((index + 1 for index, token in enumerate(tokens) if token in self.stop), len(tokens))
        return tokens[:end]


TOKENS = st.integers(0, VOCAB - 1)
PROMPTS = st.builds(
    lambda prefix, rest: (*prefix, *rest), st.sampled_from(PREFIXES), st.lists(TOKENS, min_size=1, max_size=9)
)
ARRIVALS = st.builds(
    Arrival,
    prompt=PROMPTS,
    max_output=st.integers(1, 14),
    stop=st.one_of(st.just(frozenset()), st.frozensets(TOKENS, max_size=2)),
    priority=st.sampled_from([0, 0, 0, 1, -1]),
    after=st.integers(0, 12),
    abort=st.one_of(st.none(), st.none(), st.none(), st.integers(0, 15)),
)
LONG_ARRIVALS = st.builds(
    Arrival,
    prompt=st.lists(TOKENS, min_size=1, max_size=5).map(tuple),
    max_output=st.integers(12, 28),
    stop=st.just(frozenset()),
    priority=st.sampled_from([0, 0, 1]),
    after=st.integers(0, 6),
    abort=st.one_of(st.none(), st.none(), st.none(), st.integers(0, 30)),
)
SETTINGS = st.fixed_dictionaries(
    {
        "max_requests": st.integers(1, 4),
        "num_pages": st.one_of(st.integers(4, 9), st.integers(10, 24)),
        "num_tails": st.sampled_from([0, 1, 2, 5, 20]),
        "drafts": st.integers(0, 3),
        "chunk_tokens": st.sampled_from([1, 3, 4, 7, 50]),
        "mixed": st.booleans(),
        "overlap": st.booleans(),
    }
)


def play(engine: FakeLoop, arrivals: list[Arrival]):
    """Add, step and withdraw as the arrivals say, until nothing is left."""
    pending = sorted(enumerate(arrivals), key=lambda item: item[1].after)
    added, step = {}, 0
    while pending or engine.loop.has_work:
        while pending and pending[0][1].after <= step:
            index, arrival = pending.pop(0)
            try:
                request = engine.add(arrival.prompt, arrival.max_output, stop=arrival.stop, priority=arrival.priority)
            except EngineError:
                assert len(arrival.prompt) + arrival.max_output + 2 > engine.holdings.pages.count * 4
                continue
            added[index] = (request, step)
        for index, (request, since) in added.items():
            if arrivals[index].abort is not None and step == since + arrivals[index].abort:
                alive = request.finish_reason is None
                assert engine.scheduler.abort(request) is alive
                engine.check()
        if engine.loop.has_work:
            engine.step()
        step += 1
        assert step < 5000, "the loop makes no progress"
    return {index: request for index, (request, _) in added.items()}


def check_answers(requests, arrivals):
    for index, request in requests.items():
        arrival = arrivals[index]
        got, expected = tuple(request.output), arrival.expected()
        if request.finish_reason is FinishReason.ABORT:
            assert arrival.abort is not None and got == expected[: len(got)] and len(got) < len(expected)
        else:
            assert got == expected
            stopped = bool(got) and got[-1] in arrival.stop
            assert request.finish_reason is (FinishReason.STOP if stopped else FinishReason.LENGTH)
