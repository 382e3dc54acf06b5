"""Command line of the evaluation: Markdown on stdout, progress on stderr; exit 0, 2 where it could not be made, 130."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dsv4_engine.errors import EngineError
from dsv4_engine.training.command_line import exit_status, require_torch


def main(arguments: Sequence[str] | None = None) -> int:
    """Evaluate; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m dsv4_engine.training.evaluate", description=__doc__)
    parser.add_argument("model", help="checkpoint folder, or the name of a built-in model")
    parser.add_argument("corpus", type=Path, help="folder that dsv4_engine.training.corpus has made")
    parser.add_argument("--against", metavar="MODEL", help="another checkpoint of the same model, to be compared with")
    parser.add_argument("--device", default="cpu", help="cpu (default) or cuda, which is HIP on AMD")
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16"), help="of the computation")
    parser.add_argument("--out", type=Path, metavar="FILE.json", help="write all numbers there")
    parser.add_argument("--excerpts", type=int, metavar="N", help="texts a kind to read (16, with --quick 4)")
    parser.add_argument("--prompts", type=int, metavar="N", help="texts a kind to go on with (8, with --quick 4)")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter texts: under a minute on a CPU")
    options = parser.parse_args(arguments)
    return exit_status(lambda: _evaluate(options), interrupted=lambda: "interrupted: nothing was written")


def _evaluate(options: argparse.Namespace) -> None:
    require_torch("an evaluation")
    from dsv4_engine.training.corpus import load_corpus
    from dsv4_engine.training.evaluate.card import card
    from dsv4_engine.training.evaluate.evaluation import evaluate
    from dsv4_engine.training.evaluate.settings import FULL, QUICK
    from dsv4_engine.training.evaluate.subject import Subject

    if options.out:
        _require_place(options.out)
    subject = Subject.load(options.model, device=options.device, dtype=options.dtype)
    against = Subject.load(options.against, device=options.device) if options.against else None
    held_out = load_corpus(options.corpus).held_out
    given = {name: getattr(options, name) for name in ("excerpts", "prompts") if getattr(options, name) is not None}
    settings = replace(QUICK if options.quick else FULL, **given)
    result = evaluate(subject, held_out, settings, against=against, say=_say)
    # First, so that a file that cannot be written after all does not cost the evaluation.
    print(card(result), end="", flush=True)
    if options.out:
        try:
            options.out.write_text(result.to_json(), encoding="utf-8")
        except OSError as error:
            raise EngineError(f"{options.out} cannot be written: {error}", hint="choose another file") from None


def _require_place(path: Path) -> None:
    """EngineError before minutes are spent on what could not be kept."""
    taken = path if path.exists() else path.parent
    if path.is_dir() or not path.parent.is_dir() or not os.access(taken, os.W_OK):
        raise EngineError(f"{path} cannot be written", hint="choose another file, in a folder that exists")


def _say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
