"""Command line of the check: a table on stdout; exit 0 when all agrees, 1 on a mismatch, 2 on an unusable folder."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from dsv4_engine.check.golden import read_golden
from dsv4_engine.check.ranks import on_ranks
from dsv4_engine.check.table import render
from dsv4_engine.checkpoint.sharding import require_divisible
from dsv4_engine.errors import EngineError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the check; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m dsv4_engine.check", description=__doc__)
    parser.add_argument("folder", type=Path, help="folder with config, weights and golden numbers")
    parser.add_argument("--tp", type=int, default=1, metavar="N", help="tensor-parallel CPU ranks (default 1)")
    options = parser.parse_args(arguments)
    try:
        golden = read_golden(options.folder)
        require_divisible(golden.config, options.tp)
        ledger = on_ranks(options.folder, options.tp)
    except EngineError as error:
        print(f"error: {error.message}" + (f"\nhint: {error.hint}" if error.hint else ""), file=sys.stderr)
        return 2
    print(render(ledger))
    return 0 if ledger.ok else 1


if __name__ == "__main__":
    sys.exit(main())
