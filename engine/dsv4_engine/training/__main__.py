"""Small DSV4 models, from a corpus (python -m dsv4_engine.training.corpus) to a checkpoint, which
python -m dsv4_engine.training.evaluate judges."""

from __future__ import annotations

import argparse
import sys
from dataclasses import fields
from pathlib import Path

from dsv4_engine.training.command_line import exit_status, require_torch
from dsv4_engine.training.options import Pace, RefineOptions, TrainingOptions

_GOES_ON = ("train", "refine")


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0, 2 with one sentence where something is missing or wrong, 130 after Ctrl-C."""
    options = _parser().parse_args(arguments)
    return exit_status(lambda: _run(options), interrupted=lambda: f"interrupted{_going_on(options)}")


def _going_on(options: argparse.Namespace) -> str:
    if options.action not in _GOES_ON:
        return ""
    from dsv4_engine.training.state import STATE

    if not (options.folder / STATE).exists():
        return ": nothing was saved yet"
    return ": the same command goes on from the state in its folder"


def _run(options: argparse.Namespace) -> None:
    require_torch("training")
    from dsv4_engine.training import commands

    {
        "train": commands.run_train,
        "refine": commands.run_refine,
        "export": commands.run_export,
        "plot": commands.run_plot,
    }[options.action](options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m dsv4_engine.training", description=__doc__)
    actions = parser.add_subparsers(required=True, dest="action", metavar="ACTION")
    train = actions.add_parser("train", help="train, or go on training, in a folder")
    train.add_argument("folder", type=Path)
    _add_run_arguments(train)
    train.add_argument("--model", choices=("nano", "plain"), default="nano", help="plain: to compare with")
    train.add_argument("--compile", action="store_true", help="fuse with torch.compile")
    train.add_argument("--log-every", type=int, default=Pace.log, metavar="STEPS")
    train.add_argument("--evaluate-every", type=int, default=Pace.evaluate, metavar="STEPS")
    train.add_argument("--save-every", type=int, default=Pace.save, metavar="STEPS")
    train.add_argument("--minutes", type=float, help="save and stop after so long")
    _add_options(train, TrainingOptions)
    refine = actions.add_parser("refine", help="unlearn loops of a checkpoint, in a folder that export can read")
    refine.add_argument("folder", type=Path)
    refine.add_argument("checkpoint", help="checkpoint folder, or the name of a bundled model")
    _add_run_arguments(refine)
    _add_options(refine, RefineOptions)
    export = actions.add_parser("export", help="write the official checkpoint of a trained folder")
    export.add_argument("folder", type=Path)
    export.add_argument("checkpoint", type=Path)
    export.add_argument("--quantised", action="store_true", help="fp8, and mxfp4 experts; else bfloat16")
    plot = actions.add_parser("plot", help="draw the losses of runs into a picture (needs matplotlib)")
    plot.add_argument("picture", type=Path, help="a .png or .svg file")
    plot.add_argument("runs", nargs="+", metavar="NAME=LOG", help="a name, and the log.jsonl of its folder")
    return parser


def _add_run_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--corpus", type=Path, required=True, help="folder made by dsv4_engine.training.corpus")
    parser.add_argument("--device", default="cpu", help="cpu (default) or cuda, which is HIP on AMD")


def _add_options(parser: argparse.ArgumentParser, kind: type[TrainingOptions] | type[RefineOptions]) -> None:
    for field in fields(kind):
        number = int if field.type == "int" else float
        name = f"--{field.name.replace('_', '-')}"
        parser.add_argument(name, type=number, default=field.default, help="default %(default)s")


if __name__ == "__main__":
    sys.exit(main())
