"""From single requests to the figures of a benchmark, by the definitions of sglang.bench_serving.

TTFT: from sending to the first token. TPOT: (latency - TTFT) / (tokens - 1) of each request. ITL: between tokens, of
all requests together. E2E: from sending to the last token. Concurrency: the sum of all latencies over the duration.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, pstdev

import msgspec

from dsv4prof.target.bench.client import Served


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """Milliseconds; None where nothing was measured."""

    mean: float | None = None
    median: float | None = None
    std: float | None = None
    p90: float | None = None
    p95: float | None = None
    p99: float | None = None
    max: float | None = None


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """Throughputs a second over `duration_s`. Only requests that succeeded count; `errors` are the others' reasons."""

    duration_s: float
    completed: int
    failed: int
    errors: dict[str, int]
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    request_throughput: float
    input_throughput: float
    output_throughput: float
    total_throughput: float
    concurrency: float
    e2e: Spread
    ttft: Spread
    tpot: Spread
    itl: Spread
    accept_length: float | None = None


def figures(served: Sequence[Served], duration_s: float, *, accept_length: float | None = None) -> Figures:
    """`duration_s` is from the start of the clock to the last token."""
    good = [each for each in served if each.error is None]
    failed = [each.error for each in served if each.error is not None]
    input_tokens, output_tokens = (
        sum(getattr(each, name) for each in good) for name in ("prompt_tokens", "output_tokens")
    )
    rates = [count / duration_s for count in (len(good), input_tokens, output_tokens, input_tokens + output_tokens)]
    return Figures(
        duration_s=duration_s,
        completed=len(good),
        failed=len(failed),
        errors={reason: failed.count(reason) for reason in dict.fromkeys(failed)},
        input_tokens=input_tokens,
        cached_tokens=sum(each.cached_tokens for each in good),
        output_tokens=output_tokens,
        request_throughput=rates[0],
        input_throughput=rates[1],
        output_throughput=rates[2],
        total_throughput=rates[3],
        concurrency=sum(each.latency for each in good) / duration_s,
        e2e=spread([each.latency for each in good]),
        ttft=spread([each.ttft for each in good]),
        tpot=spread([(each.latency - each.ttft) / (each.output_tokens - 1) for each in good if each.output_tokens > 1]),
        itl=spread([gap for each in good for gap in each.itl]),
        accept_length=accept_length,
    )


def spread(seconds: Sequence[float]) -> Spread:
    """Percentiles between two values are interpolated."""
    if not seconds:
        return Spread()
    values = sorted(1000 * value for value in seconds)
    return Spread(
        mean=fmean(values),
        median=_percentile(values, 50),
        std=pstdev(values),
        p90=_percentile(values, 90),
        p95=_percentile(values, 95),
        p99=_percentile(values, 99),
        max=values[-1],
    )


def _percentile(ascending: Sequence[float], percent: float) -> float:
    place = (len(ascending) - 1) * percent / 100
    below = int(place)
    above = min(below + 1, len(ascending) - 1)
    return ascending[below] + (ascending[above] - ascending[below]) * (place - below)
