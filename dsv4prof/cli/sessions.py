"""`dsv4prof sessions`: list, show and prune what was recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dsv4prof.cli import console
from dsv4prof.cli.help import Group, add, examples, show_help_without_command
from dsv4prof.cli.options import Format, SessionsDir, ShowSettings, choose

NAMES = ("sessions_dir", "format")


def register(app: typer.Typer) -> None:
    group = typer.Typer(
        cls=Group,
        help="List, show and delete recorded sessions.",
        epilog=examples("dsv4prof sessions list", "dsv4prof sessions prune --keep 5"),
        rich_markup_mode=None,
    )
    add(group, "list", list_, "dsv4prof sessions list", "dsv4prof sessions list --format json")
    add(group, "show", show, "dsv4prof sessions show latest", "dsv4prof sessions show latest --format json")
    add(group, "prune", prune, "dsv4prof sessions prune --keep 5", "dsv4prof sessions prune --keep 5 --yes")
    group.callback(invoke_without_command=True)(show_help_without_command)
    app.add_typer(group, name="sessions")


def list_(sessions_dir: SessionsDir = None, format: Format = None, show_settings: ShowSettings = False) -> int:
    """List the sessions, newest last."""
    chosen = choose(NAMES, {"sessions_dir": sessions_dir, "format": format}, show=show_settings)
    from dsv4prof import api

    return console.emit(api.sessions_list(Path(chosen["sessions_dir"])), chosen["format"])


def show(
    session: Annotated[str, typer.Argument(metavar="SESSION", help="Id, the start of one, a folder, or latest")],
    sessions_dir: SessionsDir = None,
    format: Format = None,
    show_settings: ShowSettings = False,
) -> int:
    """Show one session's ranks and settings."""
    chosen = choose(NAMES, {"sessions_dir": sessions_dir, "format": format}, show=show_settings)
    from dsv4prof import api

    return console.emit(api.sessions_show(session, Path(chosen["sessions_dir"])), chosen["format"])


def prune(
    keep: Annotated[int, typer.Option("--keep", min=0, metavar="N", help="How many of the newest to keep")],
    yes: Annotated[bool, typer.Option("--yes", help="Delete; without it the list is only shown")] = False,
    sessions_dir: SessionsDir = None,
    format: Format = None,
    show_settings: ShowSettings = False,
) -> int:
    """Delete all but the newest sessions."""
    chosen = choose(NAMES, {"sessions_dir": sessions_dir, "format": format}, show=show_settings)
    from dsv4prof import api

    report = api.sessions_prune(Path(chosen["sessions_dir"]), keep=keep, delete=yes)
    return console.emit(report, chosen["format"])
