"""Help as part of a command's manners: it goes through the console like any result, so `--help | head` exits 0."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from dsv4prof.cli import console


def _print_help(context: Any, _: Any, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        console.result(context.get_help())
        context.exit()


class Command(TyperCommand):
    """A command of ours."""

    def get_help_option(self, ctx: Any) -> Any:
        option = super().get_help_option(ctx)
        if option is not None:
            option.callback = _print_help
        return option


class Group(TyperGroup):
    """A group of commands of ours."""

    def get_help_option(self, ctx: Any) -> Any:
        option = super().get_help_option(ctx)
        if option is not None:
            option.callback = _print_help
        return option


def add(app: typer.Typer, name: str, function: Callable[..., int], *lines: str) -> None:
    """Register a command; `lines` are the examples that end its help."""
    app.command(name, cls=Command, epilog=examples(*lines))(function)


def examples(*lines: str) -> str:
    """A command's epilogue. The \\b marks keep click from filling the lines into a paragraph."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


def show_help_without_command(context: typer.Context) -> None:
    """`dsv4prof` or `dsv4prof sessions` alone is a question, not a mistake: print the help and exit 0."""
    if context.invoked_subcommand is None:
        console.result(context.get_help())
        raise typer.Exit
