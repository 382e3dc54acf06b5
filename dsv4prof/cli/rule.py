"""`dsv4prof rule`: what a code means, and which ways of writing a call it covers."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from dsv4prof.cli import console
from dsv4prof.cli.help import add
from dsv4prof.cli.options import Format, ShowSettings, choose

NAMES = ("format",)


def register(app: typer.Typer) -> None:
    add(app, "rule", rule, "dsv4prof rule DSV105", "dsv4prof rule upload --format markdown")


def rule(
    code: Annotated[str | None, typer.Argument(metavar="CODE", help="A code or name; default: list all rules")] = None,
    format: Format = None,
    show_settings: ShowSettings = False,
) -> int:
    """Explain a rule."""
    chosen = choose(NAMES, {"format": format}, show=show_settings)["format"]
    from dsv4prof import api

    if code is None:
        return console.emit(api.rules_list(), chosen)
    report = api.rule(code)
    if chosen not in ("text", "markdown"):
        return console.emit(report, chosen)
    from dsv4prof.report.rule_page import render_rule

    console.result(render_rule(report.data, markdown=chosen == "markdown", color=console.wants_color(sys.stdout)))
    return report.verdict.exit_code
