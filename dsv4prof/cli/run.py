"""`dsv4prof run`: serve prompts on the embedded engine; with --profile record every rank and report."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dsv4prof.cli import console
from dsv4prof.cli.help import add
from dsv4prof.cli.options import FailOn, Format, SessionsDir, ShowSettings, choose, setting
from dsv4prof.settings import PLAN_NAMES, plan_of

if TYPE_CHECKING:
    from dsv4prof.settings import Settings
    from dsv4prof.target.spec import RunSpec

NAMES = (
    "model", "device", "dtype", "tp", "drafts", "exact_num_tokens", "requests", "max_requests", "max_new_tokens",
    "chunk_tokens", "context_len", "prompts", "threads", "port", "name", "sessions_dir", "format", "fail_on",
    *PLAN_NAMES,
)  # fmt: skip


def register(app: typer.Typer) -> None:
    add(app, "run", run, "dsv4prof run --profile", "dsv4prof run --profile --exact-num-tokens --format json")


def run(
    profile: Annotated[bool, typer.Option("--profile", help="Record every rank, merge and report")] = False,
    model: Annotated[str | None, setting("model")] = None,
    device: Annotated[str | None, setting("device")] = None,
    dtype: Annotated[str | None, setting("dtype")] = None,
    tp: Annotated[int | None, setting("tp")] = None,
    drafts: Annotated[int | None, setting("drafts")] = None,
    exact_num_tokens: Annotated[bool | None, setting("exact_num_tokens")] = None,
    requests: Annotated[int | None, setting("requests")] = None,
    max_requests: Annotated[int | None, setting("max_requests")] = None,
    max_new_tokens: Annotated[int | None, setting("max_new_tokens")] = None,
    chunk_tokens: Annotated[int | None, setting("chunk_tokens")] = None,
    context_len: Annotated[int | None, setting("context_len")] = None,
    prompts: Annotated[str | None, setting("prompts")] = None,
    steps: Annotated[int | None, setting("steps")] = None,
    wait: Annotated[int | None, setting("wait")] = None,
    warmup: Annotated[int | None, setting("warmup")] = None,
    windows: Annotated[int | None, setting("windows")] = None,
    stages: Annotated[str | None, setting("stages")] = None,
    ranks: Annotated[str | None, setting("ranks")] = None,
    activities: Annotated[str | None, setting("activities")] = None,
    stack: Annotated[bool | None, setting("stack")] = None,
    shapes: Annotated[bool | None, setting("shapes")] = None,
    memory: Annotated[bool | None, setting("memory")] = None,
    flops: Annotated[bool | None, setting("flops")] = None,
    modules: Annotated[bool | None, setting("modules")] = None,
    size_limit_mb: Annotated[int | None, setting("size_limit_mb")] = None,
    time_limit_s: Annotated[float | None, setting("time_limit_s")] = None,
    release: Annotated[str | None, setting("release")] = None,
    threads: Annotated[int | None, setting("threads")] = None,
    port: Annotated[int | None, setting("port")] = None,
    name: Annotated[str | None, setting("name")] = None,
    sessions_dir: SessionsDir = None,
    format: Format = None,
    fail_on: FailOn = None,
    show_settings: ShowSettings = False,
) -> int:
    """Serve prompts; with --profile record and report."""
    given: dict[str, Any] = {key: value for key, value in locals().items() if key in NAMES}
    chosen = choose(NAMES, given, show=show_settings)
    from dsv4prof import api

    report = api.run(_spec(chosen, profile=profile), fail_on=chosen["fail_on"], progress=console.note)
    return 0 if report is None else console.emit(report, chosen["format"])


def _spec(chosen: Settings, *, profile: bool) -> RunSpec:
    from dsv4prof.target.spec import RunSpec

    same = (
        "model", "device", "dtype", "tp", "exact_num_tokens", "requests", "max_requests", "max_new_tokens",
        "chunk_tokens", "context_len", "prompts", "threads", "name", "port",
    )  # fmt: skip
    return RunSpec(
        **{name: chosen[name] for name in same},
        num_drafts=chosen["drafts"],
        profile=profile,
        plan=plan_of(chosen),
        root=chosen["sessions_dir"],
        settings=chosen.with_sources(),
        command=sys.argv,
    )
