"""The command line. Every command imports what it needs when it runs, so that `--help` stays instant."""

from __future__ import annotations

from typing import Annotated

import typer

from dsv4prof import __version__
from dsv4prof.cli import (
    analyze,
    attach,
    audit,
    bench,
    console,
    doctor,
    fault,
    hazards,
    merge,
    query,
    rule,
    run,
    serve,
    sessions,
    truth,
    view,
)
from dsv4prof.cli.help import CONTEXT, Group, examples, show_help_without_command

app = typer.Typer(
    name="dsv4prof",
    cls=Group,
    help="Find out why a DeepSeek-V4 MTP serving step is slow, and prove it.",
    epilog=examples("dsv4prof run --profile", "dsv4prof analyze latest"),
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings=CONTEXT,
)
run.register(app)
serve.register(app)
bench.register(app)
attach.register(app)
audit.register(app)
hazards.register(app)
fault.register(app)
merge.register(app)
analyze.register(app)
view.register(app)
query.register(app)
sessions.register(app)
rule.register(app)
truth.register(app)
doctor.register(app)


def _version(wanted: bool) -> None:
    if wanted:
        console.result(f"dsv4prof {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit")
    ] = False,
) -> None:
    """Find out why a DeepSeek-V4 MTP serving step is slow, and prove it."""
    show_help_without_command(context)


def main() -> None:
    """Entry point of the `dsv4prof` script."""
    console.keep_standard_streams()
    raise SystemExit(console.guarded(lambda: app(standalone_mode=False)))
