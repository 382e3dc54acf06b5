"""Help that fits a screen: one line an option, aligned, within 80 columns, ending with examples.

It goes through the console like any result, so that `--help | head` exits 0.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from dsv4prof.cli import console

SHOW_SETTINGS = "--show-settings"
CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 80}


def _print_help(context: Any, _: Any, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        console.result(context.get_help())
        context.exit()


class Command(TyperCommand):
    """A command of ours. What it needs is not needed to show its settings."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        relaxed = [param for param in self.params if param.required] if SHOW_SETTINGS in args else []
        for param in relaxed:
            param.required = False
        try:
            return super().parse_args(ctx, args)
        finally:
            for param in relaxed:
                param.required = True

    def get_help_option(self, ctx: Any) -> Any:
        return _with_our_help(super().get_help_option(ctx))

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return ["[OPTIONS]", *(_name(param) for param in _arguments(self, ctx))]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        _write_parameters(self, ctx, formatter)


class Group(TyperGroup):
    """A group of commands of ours."""

    def get_help_option(self, ctx: Any) -> Any:
        return _with_our_help(super().get_help_option(ctx))

    def format_options(self, ctx: Any, formatter: Any) -> None:
        _write_parameters(self, ctx, formatter)
        self.format_commands(ctx, formatter)


def _with_our_help(option: Any) -> Any:
    if option is not None:
        option.callback = _print_help
        option.help = "Show this and exit"
    return option


def _arguments(command: Any, ctx: Any) -> list[Any]:
    return [param for param in command.get_params(ctx) if param.param_type_name == "argument"]


def _write_parameters(command: Any, ctx: Any, formatter: Any) -> None:
    arguments = _arguments(command, ctx)
    if arguments:
        with formatter.section("Arguments"):
            formatter.write_dl([(_name(param), param.help or "") for param in arguments])
    options = [param for param in command.get_params(ctx) if param.param_type_name == "option" and not param.hidden]
    with formatter.section("Options [defaults]" if len(options) > 2 else "Options"):
        formatter.write_dl([(_flags(param), (param.help or "") + _required(param)) for param in options])


def _name(param: Any) -> str:
    name: str = param.metavar or param.name.upper()
    return name + "..." if param.nargs != 1 else name


def _flags(param: Any) -> str:
    """`-o, --output PATH`, `--tp N`, `--[no-]stack`."""
    flags = sorted(param.opts, key=len)
    if param.secondary_opts:
        return f"--[no-]{flags[0][2:]}"
    return ", ".join(flags) + ("" if param.is_flag else f" {param.metavar or 'NAME'}")


def _required(param: Any) -> str:
    return " [required]" if param.required else ""


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
