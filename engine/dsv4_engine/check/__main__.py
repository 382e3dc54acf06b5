"""Command line of the check: a table on stdout; exit 0 when all agrees, 1 on a mismatch, 2 on an unusable folder."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from dsv4_engine.check.golden import read_golden
from dsv4_engine.check.ranks import on_ranks
from dsv4_engine.check.table import render
from dsv4_engine.errors import EngineError
from dsv4_engine.options import EngineOptions
from dsv4_engine.parallel.sizes import require_divisible


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the check; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m dsv4_engine.check", description=__doc__)
    parser.add_argument("folder", type=Path, help="folder with config, weights and golden numbers")
    parser.add_argument("--tp", type=int, default=1, metavar="N", help="tensor-parallel ranks (default 1)")
    parser.add_argument("--device", default="cpu", help="cpu (default) or cuda, which is HIP on AMD")
    options = parser.parse_args(arguments)
    try:
        device = _device(options.device, options.tp)
        golden = read_golden(options.folder)
        require_divisible(golden.config, options.tp)
        ledger = on_ranks(options.folder, options.tp, device=device)
    except EngineError as error:
        print(f"error: {error.message}" + (f"\nhint: {error.hint}" if error.hint else ""), file=sys.stderr)
        return 2
    print(render(ledger))
    return 0 if ledger.ok else 1


def _device(name: str, ranks: int) -> torch.device:
    last = f"{name}:{ranks - 1}" if name == "cuda" and ranks > 1 else name
    EngineOptions(device=last).torch_device()
    return torch.device(name)


if __name__ == "__main__":
    sys.exit(main())
