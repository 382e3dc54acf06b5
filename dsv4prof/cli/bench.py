"""`dsv4prof bench`: load a server as many clients would, and tell latencies and throughput."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsv4prof.cli import console
from dsv4prof.cli.help import add
from dsv4prof.cli.options import Format, ShowSettings, choose
from dsv4prof.errors import UsageError

if TYPE_CHECKING:
    from dsv4prof.target.bench.spec import Dataset

NAMES = ("format",)


def register(app: typer.Typer) -> None:
    add(
        app,
        "bench",
        bench,
        "dsv4prof bench --url http://127.0.0.1:30000 --max-concurrency 16",
        "dsv4prof bench --request-rate 4 --num-prompts 100 -- --drafts 0",
    )


def bench(
    options: Annotated[
        list[str] | None, typer.Argument(metavar="SERVE", help="Behind --: options of `serve`, for one of our own")
    ] = None,
    url: Annotated[str | None, typer.Option("--url", metavar="URL", help="The server; default: one of our own")] = None,
    dataset: Annotated[
        str | None, typer.Option("--dataset-name", metavar="NAME", help="random, generated-shared-prefix or prompts")
    ] = None,
    num_prompts: Annotated[int, typer.Option("--num-prompts", metavar="N", help="Requests to send [64]")] = 64,
    input_len: Annotated[
        int | None, typer.Option("--random-input-len", metavar="N", help="Tokens of random prompts [256]")
    ] = None,
    output_len: Annotated[int, typer.Option("--random-output-len", metavar="N", help="Output tokens [64]")] = 64,
    range_ratio: Annotated[
        float | None,
        typer.Option("--random-range-ratio", metavar="X", help="Shortest over longest [0; of own prompts 1]"),
    ] = None,
    request_rate: Annotated[
        float, typer.Option("--request-rate", metavar="X", help="Arrivals a second, Poisson [inf: at once]")
    ] = float("inf"),
    max_concurrency: Annotated[
        int | None, typer.Option("--max-concurrency", metavar="N", help="Most requests under way [no limit]")
    ] = None,
    gsp_groups: Annotated[int, typer.Option("--gsp-num-groups", metavar="N", help="Shared prefixes [4]")] = 4,
    gsp_prompts: Annotated[
        int, typer.Option("--gsp-prompts-per-group", metavar="N", help="Requests for each of them [8]")
    ] = 8,
    gsp_system: Annotated[
        int, typer.Option("--gsp-system-prompt-len", metavar="N", help="Tokens of a shared prefix [1024]")
    ] = 1024,
    gsp_question: Annotated[int, typer.Option("--gsp-question-len", metavar="N", help="Tokens behind it [32]")] = 32,
    gsp_output: Annotated[int, typer.Option("--gsp-output-len", metavar="N", help="Output tokens [32]")] = 32,
    prompts: Annotated[
        str | None, typer.Option("--prompts", metavar="FILE", help="Between lines of ---; default: the bundled ones")
    ] = None,
    vocab_size: Annotated[
        int, typer.Option("--vocab-size", metavar="N", help="Random token ids are below it [250]")
    ] = 250,
    temperature: Annotated[float, typer.Option("--temperature", metavar="X", help="0 is greedy [0]")] = 0.0,
    ignore_eos: Annotated[
        bool, typer.Option("--ignore-eos/--no-ignore-eos", help="Outputs as long as asked for [on]", show_default=False)
    ] = True,
    warmup: Annotated[int, typer.Option("--warmup-requests", metavar="N", help="Before the clock starts [1]")] = 1,
    flush: Annotated[bool, typer.Option("--flush-cache", help="Empty the prefix cache after the warm-up")] = False,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Equal seeds, equal requests [1]")] = 1,
    timeout: Annotated[float, typer.Option("--timeout", metavar="X", help="Seconds for one request [600]")] = 600.0,
    api_key: Annotated[
        str | None, typer.Option("--api-key", metavar="KEY", help="The server's key; - reads it from stdin")
    ] = None,
    model_name: Annotated[
        str | None, typer.Option("--model-name", metavar="NAME", help="To ask for; default: the first served")
    ] = None,
    output_file: Annotated[
        Path | None, typer.Option("--output-file", metavar="PATH", help="Append the figures as a line of JSON")
    ] = None,
    format: Format = None,
    show_settings: ShowSettings = False,
) -> int:
    """Load a server and measure it."""
    chosen = choose(NAMES, {"format": format}, show=show_settings)
    if url is not None and options:
        raise UsageError(f"{url} has its own options", hint="leave out what is behind --, or --url")
    from dsv4prof import api
    from dsv4prof.target.bench.spec import RANDOM_INPUT_LEN, BenchSpec

    spec = BenchSpec(
        url=url or "http://127.0.0.1",
        api_key=sys.stdin.readline().strip() if api_key == "-" else api_key,
        model=model_name,
        dataset=_dataset(dataset, prompts=prompts, own=url is None, input_len=input_len),
        num_prompts=num_prompts,
        input_len=RANDOM_INPUT_LEN if input_len is None else input_len,
        output_len=output_len,
        range_ratio=range_ratio,
        gsp_groups=gsp_groups,
        gsp_prompts_per_group=gsp_prompts,
        gsp_system_len=gsp_system,
        gsp_question_len=gsp_question,
        gsp_output_len=gsp_output,
        prompts=prompts,
        request_rate=request_rate,
        max_concurrency=max_concurrency,
        vocab_size=vocab_size,
        temperature=temperature,
        ignore_eos=ignore_eos,
        warmup=warmup,
        flush=flush,
        seed=seed,
        timeout_s=timeout,
    )
    own = (options or []) if url is None else None
    with console.terminated_as_interrupted():
        report = api.bench(spec, own=own, output_file=output_file, progress=console.note)
    return console.emit(report, chosen["format"])


def _dataset(named: str | None, *, prompts: str | None, own: bool, input_len: int | None) -> Dataset:
    """Texts for our own server, whose model goes on with them; random ids elsewhere, where texts may not fit."""
    if named is not None:
        return named  # type: ignore[return-value]
    return "prompts" if prompts is not None or (own and input_len is None) else "random"
