"""The requests of a benchmark, all known before the first is sent: equal seeds give equal requests."""

from __future__ import annotations

import random
from itertools import accumulate, cycle, islice

import msgspec

from dsv4prof.errors import InputError
from dsv4prof.target.bench.spec import BenchSpec

# Below it known tokenizers keep their special tokens.
_FIRST_TOKEN = 20


class BenchRequest(msgspec.Struct, frozen=True):
    """prompt: token ids, or a text. at_s: when it arrives, after the clock has started."""

    prompt: list[int] | str
    output_len: int
    at_s: float


def make_requests(spec: BenchSpec) -> list[BenchRequest]:
    """In the order of their arrival. Raises InputError for a file of prompts that cannot be read."""
    numbers = random.Random(spec.seed)
    made = {"random": _random, "generated-shared-prefix": _shared_prefix, "prompts": _texts}[spec.dataset](
        spec, numbers
    )
    moments = _arrivals(spec, len(made), numbers)
    return [BenchRequest(prompt, output_len, at) for (prompt, output_len), at in zip(made, moments, strict=True)]


def _random(spec: BenchSpec, numbers: random.Random) -> list[tuple[list[int] | str, int]]:
    return [
        (_tokens(spec, _length(spec.input_len, spec, numbers), numbers), _length(spec.output_len, spec, numbers))
        for _ in range(spec.num_prompts)
    ]


def _shared_prefix(spec: BenchSpec, numbers: random.Random) -> list[tuple[list[int] | str, int]]:
    """Groups are mixed, as conversations of many users are."""
    made: list[tuple[list[int] | str, int]] = []
    for _ in range(spec.gsp_groups):
        system = _tokens(spec, spec.gsp_system_len, numbers)
        made += [
            (system + _tokens(spec, spec.gsp_question_len, numbers), spec.gsp_output_len)
            for _ in range(spec.gsp_prompts_per_group)
        ]
    numbers.shuffle(made)
    return made


def _texts(spec: BenchSpec, numbers: random.Random) -> list[tuple[list[int] | str, int]]:
    from dsv4_engine.errors import EngineError
    from dsv4_engine.prompts import load_prompts

    try:
        texts = load_prompts(spec.prompts)
    except EngineError as error:
        raise InputError(error.message, hint=error.hint) from error
    return [(text, _length(spec.output_len, spec, numbers)) for text in islice(cycle(texts), spec.num_prompts)]


def _length(longest: int, spec: BenchSpec, numbers: random.Random) -> int:
    return numbers.randint(max(1, int(longest * spec.ratio)), longest)


def _tokens(spec: BenchSpec, length: int, numbers: random.Random) -> list[int]:
    return [numbers.randrange(_FIRST_TOKEN, spec.vocab_size) for _ in range(length)]


def _arrivals(spec: BenchSpec, count: int, numbers: random.Random) -> list[float]:
    if spec.request_rate == float("inf"):
        return [0.0] * count
    gaps = [numbers.expovariate(spec.request_rate) for _ in range(count - 1)]
    return list(accumulate(gaps, initial=0.0))
