"""Load a server and report what its clients saw, under the names of sglang.bench_serving."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import msgspec

from dsv4prof import __version__
from dsv4prof.api.outputs import require_writable
from dsv4prof.api.words import plural
from dsv4prof.errors import MissingExtraError, OutputError
from dsv4prof.model.report import Check, Column, Provenance, Report, Section, Verdict
from dsv4prof.target.bench.spec import BenchSpec

Progress = Callable[[str], None]
_COLUMNS = [Column("name", ""), Column("value", "")]
_SPREADS = (
    ("e2e", "End-to-end latency", "E2E Latency", ("mean", "median", "p90", "p99")),
    ("ttft", "Time to first token", "TTFT", ("mean", "median", "p90", "p99")),
    ("tpot", "Time per output token (without the first)", "TPOT", ("mean", "median", "p90", "p99")),
    ("itl", "Inter-token latency", "ITL", ("mean", "median", "p90", "p95", "p99", "max")),
)


def bench(
    spec: BenchSpec,
    *,
    own: Sequence[str] | None = None,
    output_file: Path | None = None,
    progress: Progress = lambda event: None,
) -> Report:
    """Exit status 1 when a request failed, 130 with what was measured when Ctrl-C ended it. `own`: arguments of a
    server that is started for it, whose address replaces `spec.url`. `output_file` gets one line of JSON more.

    Raises UsageError when the server cannot be reached or refuses, OutputError for a file that cannot be written,
    MissingExtraError without httpx.
    """
    try:
        from dsv4prof.target.bench.load import bench as load
        from dsv4prof.target.bench.own import own_server
    except ImportError as error:
        raise MissingExtraError(error.name or "httpx", "engine", purpose="the benchmark client") from error

    if output_file is not None:
        require_writable(output_file, option="--output-file")
    with nullcontext(spec.url) if own is None else own_server(own) as url:
        chosen = msgspec.structs.replace(spec, url=url)
        benched = load(chosen, progress)
    record = _record(chosen, benched)
    if output_file is not None:
        _append(output_file, record)
    then = "dsv4prof run --profile" if own is not None else f"dsv4prof attach {url}"
    return _report(chosen, benched, record, output_file, then)


def _report(spec: BenchSpec, benched: Any, record: dict[str, Any], output_file: Path | None, then: str) -> Report:
    figures = benched.figures
    reasons = [f"{count} x {reason}" for reason, count in figures.errors.items()]
    failed = f"{plural(figures.failed, 'request')} failed: {reasons[0]}" if reasons else ""
    checks = [Check(key="requests", ok=not reasons, message=failed or f"{plural(figures.completed, 'request')} served")]
    if benched.interrupted:
        answered = figures.completed + figures.failed
        failed = f"interrupted: {answered} of {plural(benched.asked, 'request')} had an answer"
        checks.append(Check(key="interrupted", ok=False, message=failed))
    if output_file is not None:
        checks.append(Check(key="output", ok=True, message=f"{output_file}: one line more"))
    return Report(
        kind="bench",
        provenance=Provenance(command="bench", inputs=[spec.url], versions={"dsv4prof": __version__}),
        checks=checks,
        sections=[_totals(spec, figures), *_latencies(figures)],
        notes=reasons[1:],
        verdict=Verdict(exit_code=130 if benched.interrupted else 1 if reasons else 0, summary=failed or "served"),
        next_command=then,
        data=record,
    )


def _totals(spec: BenchSpec, figures: Any) -> Section:
    rows: list[tuple[str, object]] = [
        ("Traffic request rate", spec.request_rate),
        ("Max request concurrency", spec.max_concurrency or "not set"),
        ("Successful requests", figures.completed),
        ("Failed requests", figures.failed),
        ("Benchmark duration (s)", figures.duration_s),
        ("Total input tokens", figures.input_tokens),
        ("Total cached tokens", figures.cached_tokens),
        ("Total generated tokens", figures.output_tokens),
        ("Request throughput (req/s)", figures.request_throughput),
        ("Input token throughput (tok/s)", figures.input_throughput),
        ("Output token throughput (tok/s)", figures.output_throughput),
        ("Total token throughput (tok/s)", figures.total_throughput),
        ("Concurrency", figures.concurrency),
    ]
    if figures.accept_length is not None:
        rows.append(("Accept length", figures.accept_length))
    return _section("totals", "Serving benchmark result", rows)


def _latencies(figures: Any) -> list[Section]:
    words = {"mean": "Mean", "median": "Median", "max": "Max"}
    return [
        _section(
            key,
            title,
            [(f"{words.get(name, name.upper())} {short} (ms)", getattr(getattr(figures, key), name)) for name in names],
        )
        for key, title, short, names in _SPREADS
    ]


def _section(key: str, title: str, rows: Sequence[tuple[str, object]]) -> Section:
    return Section(
        key=key,
        title=title,
        columns=_COLUMNS,
        rows=[{"name": f"{name}:", "value": _shown(value)} for name, value in rows],
    )


def _shown(value: object) -> str:
    if value is None:
        return "-"
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def _record(spec: BenchSpec, benched: Any) -> dict[str, Any]:
    """Flat, with the keys of sglang.bench_serving's own output where it has them."""
    figures = benched.figures
    spreads = {
        f"{name}_{key if key != 'e2e' else 'e2e_latency'}_ms": getattr(getattr(figures, key), name)
        for key, _, _, _ in _SPREADS
        for name in ("mean", "median", "std", "p90", "p95", "p99", "max")
    }
    finite = spec.request_rate if spec.request_rate != float("inf") else "inf"
    return {
        "backend": "openai",
        "url": spec.url,
        "model": benched.model,
        "dataset_name": spec.dataset,
        "num_prompts": figures.completed + figures.failed,
        "random_input_len": spec.input_len,
        "random_output_len": spec.output_len,
        "random_range_ratio": spec.ratio,
        "request_rate": finite,
        "max_concurrency": spec.max_concurrency,
        "seed": spec.seed,
        "duration": figures.duration_s,
        "completed": figures.completed,
        "failed": figures.failed,
        "errors": figures.errors,
        "interrupted": benched.interrupted,
        "total_input_tokens": figures.input_tokens,
        "total_cached_tokens": figures.cached_tokens,
        "total_output_tokens": figures.output_tokens,
        "request_throughput": figures.request_throughput,
        "input_throughput": figures.input_throughput,
        "output_throughput": figures.output_throughput,
        "total_throughput": figures.total_throughput,
        "concurrency": figures.concurrency,
        "accept_length": figures.accept_length,
        **spreads,
    }


def _append(path: Path, record: dict[str, Any]) -> None:
    try:
        with path.open("ab") as file:
            file.write(msgspec.json.encode(record) + b"\n")
    except OSError as error:
        raise OutputError(f"{path} cannot be written: {error.strerror}", hint="send the report elsewhere") from None
