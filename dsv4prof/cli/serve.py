"""`dsv4prof serve`: the embedded engine as an OpenAI-compatible server that can be profiled while it serves."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dsv4prof.cli import console
from dsv4prof.cli.help import add
from dsv4prof.cli.options import ENGINE_NAMES, ShowSettings, choose, engine_fields, takes
from dsv4prof.settings import SETTINGS

if TYPE_CHECKING:
    from dsv4prof.settings import Settings
    from dsv4prof.target.spec import RunSpec

SERVER_NAMES = ("serve_host", "serve_model_name", "serve_max_queue", "serve_max_body_mb", "serve_grace")
NAMES = (*SERVER_NAMES, *ENGINE_NAMES, "name", "sessions_dir", "format")
# `tp` is shared with `run`, which shows ranks by default; a server needs none.
DEFAULTS = {"tp": 1}


def register(app: typer.Typer) -> None:
    add(app, "serve", serve, "dsv4prof serve --port 30000", "dsv4prof serve --model DIR --device cuda --tp 4")


@takes(*NAMES)
def serve(
    port: Annotated[
        int | None, typer.Option("--port", metavar="N", help="To listen on; 0: a free one [0]", show_default=False)
    ] = None,
    tp: Annotated[
        int | None, typer.Option("--tp", metavar="N", help=SETTINGS["tp"].help + " [1]", show_default=False)
    ] = None,
    api_key: Annotated[
        str | None, typer.Option("--api-key", metavar="KEY", help="Asked of clients; - reads it from stdin")
    ] = None,
    by_bench: Annotated[bool, typer.Option("--by-bench", hidden=True)] = False,
    show_settings: ShowSettings = False,
    **given: Any,
) -> int:
    """Serve a model over OpenAI's HTTP API."""
    given |= {"port": port, "tp": tp}
    chosen = choose(("port", "tp", *NAMES), given, show=show_settings, defaults=DEFAULTS)
    from dsv4prof import api
    from dsv4prof.target.server.spec import ServeSpec

    spec = ServeSpec(
        engine=_engine(chosen),
        host=chosen["serve_host"],
        port=chosen["port"],
        api_key=sys.stdin.readline().strip() if api_key == "-" else api_key,
        model_name=chosen["serve_model_name"],
        max_queue=chosen["serve_max_queue"],
        max_body_mb=chosen["serve_max_body_mb"],
        grace_s=chosen["serve_grace"],
    )
    # While it loads; a server that serves has handlers of its own.
    with console.terminated_as_interrupted():
        interrupted = api.serve(spec, progress=console.note, ready=console.result if by_bench else _tell)
    if interrupted:
        raise console.EndedError
    return 0


def _tell(url: str) -> None:
    """The address alone is the result, for scripts."""
    console.result(url)
    console.note(f"serving; next: dsv4prof bench --url {url}, dsv4prof attach {url}; Ctrl-C ends it")


def _engine(chosen: Settings) -> RunSpec:
    from dsv4prof.target.spec import RunSpec

    return RunSpec(
        **engine_fields(chosen),
        name=chosen["name"],
        tp=chosen["tp"],
        root=chosen["sessions_dir"],
        settings=chosen.with_sources(),
    )
