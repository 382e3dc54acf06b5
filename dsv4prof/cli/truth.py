"""`dsv4prof truth`: measure which calls make the host wait on this device."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from dsv4prof.cli import console
from dsv4prof.cli.help import Group, add, examples, show_help_without_command
from dsv4prof.cli.options import Format, ShowSettings, choose

NAMES = ("format",)

FailOnDrift = Annotated[
    bool, typer.Option("--fail-on-drift", help="Exit 1 where a verdict differs and no form says so")
]
Only = Annotated[str | None, typer.Option("--only", metavar="GLOB", help="Cases whose name fits")]


def register(app: typer.Typer) -> None:
    lines = ("dsv4prof truth measure", "dsv4prof truth compare shipped mine.jsonl")
    group = typer.Typer(
        cls=Group,
        help="Measure which calls make the host wait here.",
        epilog=examples(*lines),
        rich_markup_mode=None,
    )
    add(group, "measure", measure, lines[0], "dsv4prof truth measure --only 'upload_*' -o uploads.jsonl")
    add(group, "compare", compare, lines[1], "dsv4prof truth compare old.jsonl new.jsonl --fail-on-drift")
    add(group, "list", list_, "dsv4prof truth list", "dsv4prof truth list --format json")
    add(group, "check", check, "dsv4prof truth check mine.jsonl --no-gpu", "dsv4prof truth check shipped.jsonl")
    group.callback(invoke_without_command=True)(show_help_without_command)
    app.add_typer(group, name="truth")


def measure(
    cases: Annotated[
        Path | None, typer.Option("--cases", metavar="FILE", help="Cases to measure; default: the shipped ones")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="PATH", help="JSON lines; default: named by the device")
    ] = None,
    only: Only = None,
    against: Annotated[
        str, typer.Option("--against", metavar="FILE", help="Compare with a file, or none [shipped]")
    ] = "shipped",
    fail_on_drift: FailOnDrift = False,
    format: Format = None,
    show_settings: ShowSettings = False,
) -> int:
    """Measure every case on this machine's device."""
    chosen = choose(NAMES, {"format": format}, show=show_settings)
    from dsv4prof import api

    with console.terminated_as_interrupted():
        report = api.truth_measure(
            cases=cases,
            output=output,
            only=only,
            against=None if against == "none" else against,
            fail_on_drift=fail_on_drift,
            progress=console.note,
        )
    return console.emit(report, chosen["format"])


def check(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Measured cases, or cases alone")],
    no_gpu: Annotated[bool, typer.Option("--no-gpu", help="On shadow tensors, for which no device is needed")] = False,
    vendor: Annotated[str, typer.Option("--vendor", metavar="NAME", help="Of the shadow: cuda or hip [cuda]")] = "cuda",
    only: Only = None,
    torch: Annotated[
        str | None, typer.Option("--torch", metavar="VERSION", help="Judge shadows as this torch [the installed one]")
    ] = None,
    format: Format = None,
    show_settings: ShowSettings = False,
) -> int:
    """Judge the detector by cases: missed and false."""
    chosen = choose(NAMES, {"format": format}, show=show_settings)
    from dsv4prof import api

    report = api.truth_check(file, gpu=not no_gpu, vendor=vendor, only=only, torch_version=torch, progress=console.note)
    return console.emit(report, chosen["format"])


def compare(
    old: Annotated[str, typer.Argument(metavar="OLD", help="A file of measurements, or shipped")],
    new: Annotated[str, typer.Argument(metavar="NEW", help="A file of measurements, or shipped")],
    fail_on_drift: FailOnDrift = False,
    format: Format = None,
    show_settings: ShowSettings = False,
) -> int:
    """Say in which calls two measurements differ."""
    chosen = choose(NAMES, {"format": format}, show=show_settings)
    from dsv4prof import api

    return console.emit(api.truth_compare(old, new, fail_on_drift=fail_on_drift), chosen["format"])


def list_(only: Only = None, format: Format = None, show_settings: ShowSettings = False) -> int:
    """List the shipped measurements, and the cases."""
    chosen = choose(NAMES, {"format": format}, show=show_settings)
    from dsv4prof import api

    return console.emit(api.truth_list(only), chosen["format"])
