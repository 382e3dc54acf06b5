"""`dsv4prof serve`: the embedded engine as an OpenAI-compatible server that can be profiled while it serves."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dsv4prof.cli import console
from dsv4prof.cli.help import add
from dsv4prof.cli.options import ENGINE_NAMES, ShowSettings, choose, engine_fields, takes

if TYPE_CHECKING:
    from dsv4prof.settings import Settings
    from dsv4prof.target.spec import RunSpec

NAMES = (*ENGINE_NAMES, "name", "sessions_dir", "format")


def register(app: typer.Typer) -> None:
    add(app, "serve", serve, "dsv4prof serve --port 30000", "dsv4prof serve --model DIR --device cuda --tp 4")


@takes(*NAMES)
def serve(
    host: Annotated[str, typer.Option("--host", metavar="HOST", help="Address to listen on [127.0.0.1]")] = "127.0.0.1",
    port: Annotated[int, typer.Option("--port", metavar="N", help="0: a free one [0]")] = 0,
    api_key: Annotated[
        str | None, typer.Option("--api-key", metavar="KEY", help="Asked of clients; - reads it from stdin")
    ] = None,
    model_name: Annotated[
        str | None, typer.Option("--model-name", metavar="NAME", help="For clients; default: the folder's name")
    ] = None,
    max_queue: Annotated[
        int, typer.Option("--max-queue", metavar="N", help="Requests that may wait; more get 429 [256]")
    ] = 256,
    max_body_mb: Annotated[int, typer.Option("--max-body-mb", metavar="N", help="Of a request, MiB [16]")] = 16,
    grace: Annotated[float, typer.Option("--grace", metavar="X", help="Seconds to finish requests at the end [5]")] = 5,
    tp: Annotated[int, typer.Option("--tp", metavar="N", help="Tensor-parallel ranks, a process each [1]")] = 1,
    show_settings: ShowSettings = False,
    **given: Any,
) -> int:
    """Serve a model over OpenAI's HTTP API."""
    chosen = choose(NAMES, given, show=show_settings)
    from dsv4prof import api
    from dsv4prof.target.server.spec import ServeSpec

    spec = ServeSpec(
        engine=_engine(chosen, tp=tp),
        host=host,
        port=port,
        api_key=sys.stdin.readline().strip() if api_key == "-" else api_key,
        model_name=model_name,
        max_queue=max_queue,
        max_body_mb=max_body_mb,
        grace_s=grace,
    )
    # While it loads; a server that serves has handlers of its own.
    with console.terminated_as_interrupted():
        interrupted = api.serve(spec, progress=console.note, ready=_tell)
    if interrupted:
        raise console.EndedError
    return 0


def _tell(url: str) -> None:
    """The address alone is the result, for scripts."""
    console.result(url)
    console.note(f"serving; next: dsv4prof bench --url {url}, dsv4prof attach {url}; Ctrl-C ends it")


def _engine(chosen: Settings, *, tp: int) -> RunSpec:
    from dsv4prof.target.spec import RunSpec

    return RunSpec(
        **engine_fields(chosen),
        name=chosen["name"],
        tp=tp,
        root=chosen["sessions_dir"],
        settings=chosen.with_sources(),
    )
