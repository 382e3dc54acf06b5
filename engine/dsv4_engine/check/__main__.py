"""Command line of the check: a table on stdout; exit 0 when all agrees, 1 on a mismatch, 2 on an unusable folder."""

from __future__ import annotations

import argparse
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dsv4_engine.errors import EngineError

if TYPE_CHECKING:
    import torch

    from dsv4_engine.check.ledger import Ledger


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the check; returns the exit status. Only a comparison that failed is 1, whatever else goes wrong is 2."""
    parser = argparse.ArgumentParser(prog="python -m dsv4_engine.check", description=__doc__)
    parser.add_argument("folder", type=Path, help="folder with config, weights and golden numbers")
    parser.add_argument("--tp", type=int, default=1, metavar="N", help="tensor-parallel ranks (default 1)")
    parser.add_argument("--device", default="cpu", help="cpu (default) or cuda, which is HIP on AMD")
    options = parser.parse_args(arguments)
    try:
        table, ok = _check(options.folder, options.tp, options.device)
    except EngineError as error:
        return _refuse(error.message, error.hint)
    except Exception as error:  # at the edge of the process, where Python would exit with 1, as for a mismatch
        traceback.print_exc()
        hint = "this says nothing about the folder; report it with the lines above"
        raise SystemExit(_refuse(f"internal error: {error!r}", hint)) from error
    print(table)
    return 0 if ok else 1


def _refuse(message: str, hint: str | None) -> int:
    print(f"error: {message}" + (f"\nhint: {hint}" if hint else ""), file=sys.stderr)
    return 2


def _check(folder: Path, ranks: int, device: str) -> tuple[str, bool]:
    """The table, and whether all agrees."""
    try:
        import torch  # noqa: F401 - asked for first, so that its absence is one sentence
    except ImportError:
        raise EngineError("the check needs the package 'torch'", hint="pip install 'dsv4prof[engine]'") from None
    from dsv4_engine.check.table import render

    ledger = _compare(folder, ranks, device)
    return render(ledger), ledger.ok


def _compare(folder: Path, ranks: int, device: str) -> Ledger:
    from dsv4_engine.check.golden import read_golden
    from dsv4_engine.check.ranks import on_ranks
    from dsv4_engine.parallel.sizes import require_divisible

    known_device = _device(device, ranks)
    require_divisible(read_golden(folder).config, ranks)
    return on_ranks(folder, ranks, device=known_device)


def _device(name: str, ranks: int) -> torch.device:
    import torch

    from dsv4_engine.options import EngineOptions

    last = f"{name}:{ranks - 1}" if name == "cuda" and ranks > 1 else name
    EngineOptions(device=last).torch_device()
    return torch.device(name)


if __name__ == "__main__":
    sys.exit(main())
