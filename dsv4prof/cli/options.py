"""Option declarations shared by the commands; help texts come from the settings table, the one place that has them."""

from __future__ import annotations

from typing import Any

import typer

from dsv4prof.settings import SETTINGS


def setting(name: str, *flags: str) -> Any:
    """A typer option for a setting. None stands for "not given", so that weaker sources can decide."""
    declared = SETTINGS[name]
    default = "" if declared.default is None else f" [default: {_plain(declared.default)}]"
    kind = {str: "TEXT", int: "N", float: "X", bool: None}[declared.kind]
    metavar = "|".join(declared.choices) or kind
    return typer.Option(*(flags or _flags(name)), help=declared.help + default, metavar=metavar, show_default=False)


def _flags(name: str) -> tuple[str, ...]:
    declared = SETTINGS[name]
    if declared.kind is bool:
        return (f"{declared.flag}/--no-{declared.flag[2:]}",)
    return (declared.flag,)


def _plain(value: object) -> str:
    return {True: "on", False: "off"}.get(value, str(value)) if isinstance(value, bool) else str(value)


SHOW_SETTINGS = typer.Option("--show-settings", help="Print every setting with its source, and exit.")
