"""`python -m dsv4_engine.training.corpus FOLDER`: make a corpus, and say what it holds."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from dsv4_engine.training.command_line import exit_status
from dsv4_engine.training.corpus.manifest import Manifest
from dsv4_engine.training.corpus.prepare import prepare
from dsv4_engine.training.corpus.sources import Sources


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0, 2 for folders that cannot be used, 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(prog="python -m dsv4_engine.training.corpus", description=__doc__)
    parser.add_argument("folder", type=Path, help="where corpus.npz and manifest.json are written")
    parser.add_argument("--stdlib", type=Path, help="a standard library; default: that of this Python")
    parser.add_argument("--docs", type=Path, help="the reST pages of Python's documentation; default: where installed")
    given = parser.parse_args(arguments)

    def made() -> None:
        print(table(prepare(Sources.found(given.stdlib, given.docs), given.folder)))

    return exit_status(made, interrupted=lambda: "interrupted: the folder holds what it held before")


def table(manifest: Manifest) -> str:
    """One line for each kind of each split, then the sources with their licence, then what was left out."""
    lines = [f"{'split':<10}{'kind':<11}{'documents':>9}{'MB':>9}{'share of rows':>15}"]
    for part in manifest.parts:
        share = f"{manifest.weights[part.kind]:.0%}" if part.split == "train" else "-"
        lines.append(f"{part.split:<10}{part.kind:<11}{part.documents:>9}{part.num_bytes / 1e6:>9.2f}{share:>15}")
    lines.append("")
    for source in manifest.sources:
        size = f"{source.files} files, {source.num_bytes / 1e6:.1f} MB"
        lines.append(f"{source.name} {source.version}: {size}, {source.licence}")
    if "prose" not in manifest.weights:
        lines.append("no prose: no documentation of Python was found (--docs)")
    left_out = ", ".join(f"{count} {reason}" for reason, count in manifest.left_out.items())
    lines.append(f"left out: {left_out or 'nothing'}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
