"""`dsv4prof hazards`: what a sync protects, and whether it may go."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dsv4prof.cli import console
from dsv4prof.cli.help import CONTEXT, Command, Group, add, examples
from dsv4prof.cli.options import ENGINE_NAMES, FailOn, Format, ShowSettings, choose, engine_fields, takes
from dsv4prof.errors import UsageError

if TYPE_CHECKING:
    from dsv4prof.settings import Settings
    from dsv4prof.target.hazard_run import HazardSpec

# An answer fails nothing.
_ASKED = (*ENGINE_NAMES, "requests", "max_new_tokens", "prompts", "format")
NAMES = (*_ASKED, "fail_on")
# One rank that says cuda; a hazard is a finding, and fails.
_ASKED_DEFAULTS = {"device": "cuda"}
DEFAULTS = {**_ASKED_DEFAULTS, "fail_on": "warning"}
_ENGINE, _EXPLAIN, _COMMAND = "engine", "explain", "command"

NoGpu = Annotated[bool, typer.Option("--no-gpu", help="On shadow tensors, even where there is a GPU")]
Steps = Annotated[int | None, typer.Option("--steps", metavar="N", help="Steps to make; default: one workload", min=1)]
Output = Annotated[
    Path | None, typer.Option("-o", "--output", metavar="FILE", help="Keep the run, for explain --ran FILE")
]
Ran = Annotated[Path | None, typer.Option("--ran", metavar="FILE", help="A run that was kept, instead of a new one")]


class HazardGroup(Group):
    """`hazards [options]` watches the engine, `hazards -- CMD` a command; only `explain` is named."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if "--" in args and args[0] not in self.commands:
            at = args.index("--")
            args = [_COMMAND, *args[:at], *args[at + 1 :]]
        elif not args or (args[0] not in self.commands and args[0] not in ("-h", "--help")):
            args = [_ENGINE, *args]
        return super().parse_args(ctx, args)


def register(app: typer.Typer) -> None:
    lines = ("dsv4prof hazards --faults freed_staging --plan-on host", "dsv4prof hazards explain metadata.py:76")
    group = typer.Typer(
        cls=HazardGroup,
        help="What syncs protect. Without a command: watch the engine; `hazards -- CMD` watches a program of yours.",
        epilog=examples(lines[0], "dsv4prof hazards -- python serve.py"),
        rich_markup_mode=None,
    )
    add(group, _ENGINE, engine, lines[0], "dsv4prof hazards --steps 100 -o run.hazards.json.gz")
    add(group, _EXPLAIN, explain, lines[1], "dsv4prof hazards explain loop.py:StepLoop.step --ran run.hazards.json.gz")
    context: dict[Any, Any] = {**CONTEXT, "allow_interspersed_args": False}
    epilog = examples("dsv4prof hazards -- python serve.py", "dsv4prof hazards --no-gpu -- pytest tests")
    group.command(_COMMAND, cls=Command, epilog=epilog, context_settings=context)(command)
    app.add_typer(group, name="hazards")


@takes(*NAMES, defaults=DEFAULTS)
def engine(
    no_gpu: NoGpu = False,
    steps: Steps = None,
    output: Output = None,
    ran: Ran = None,
    show_settings: ShowSettings = False,
    **given: Any,
) -> int:
    """Serve the workload on the engine and tell its hazards."""
    chosen = choose(NAMES, given, show=show_settings, defaults=DEFAULTS)
    from dsv4prof.api import hazards as api

    if ran is not None:
        return console.emit(api.hazards_of_run(ran, fail_on=chosen["fail_on"]), chosen["format"])
    spec = _spec(chosen, no_gpu=no_gpu, steps=steps)
    report = api.hazards(spec, output=output, fail_on=chosen["fail_on"], progress=console.note)
    return console.emit(report, chosen["format"])


@takes(*_ASKED, defaults=_ASKED_DEFAULTS)
def explain(
    location: Annotated[str, typer.Argument(metavar="LOCATION", help="FILE:LINE or FILE:FUNCTION of a sync")],
    ran: Ran = None,
    no_gpu: NoGpu = False,
    steps: Steps = None,
    output: Output = None,
    show_settings: ShowSettings = False,
    **given: Any,
) -> int:
    """Say what the syncs of a place protect, in a run."""
    chosen = choose(_ASKED, given, show=show_settings, defaults=_ASKED_DEFAULTS)
    from dsv4prof.api import hazards as api

    spec = None if ran is not None else _spec(chosen, no_gpu=no_gpu, steps=steps)
    report = api.hazards_explain(location, ran=ran, spec=spec, output=output, progress=console.note)
    return console.emit(report, chosen["format"])


def command(
    program: Annotated[
        list[str], typer.Argument(metavar="CMD", help="A program that starts Python, and its arguments")
    ],
    no_gpu: NoGpu = False,
    output: Output = None,
    format: Format = None,
    fail_on: FailOn = None,
    show_settings: ShowSettings = False,
) -> int:
    """Watch a program of yours: `audit run --hazards`."""
    from dsv4prof.cli import audit_run

    if output is not None:
        from dsv4prof.api.outputs import require_writable
        from dsv4prof.sync.runtime.hazards.watch import KEEP_ENV

        require_writable(output, option="--output")
        # A run that was kept before would be taken for this one; each process keeps its own beside the first.
        output.unlink()
        os.environ[KEEP_ENV] = str(output.resolve())
    return audit_run.run(
        program, no_gpu=no_gpu, hazards=True, format=format, fail_on=fail_on, show_settings=show_settings
    )


def _spec(chosen: Settings, *, no_gpu: bool, steps: int | None) -> HazardSpec:
    from dsv4prof.target.hazard_run import HazardSpec
    from dsv4prof.target.spec import RunSpec

    if chosen["device"] == "cpu":
        raise UsageError("a CPU runs everything in order: there are no hazards", hint="--device cuda --no-gpu")
    run = RunSpec(
        **engine_fields(chosen),
        **{name: chosen[name] for name in ("requests", "max_new_tokens", "prompts")},
        settings=chosen.with_sources(),
        command=sys.argv,
    )
    return HazardSpec(run=run, steps=steps, gpu=False if no_gpu else None)
