"""Small traces, merged and written in both formats."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from dsv4prof.trace.merging import Merge
from dsv4prof.trace.perfetto.format import PftraceFormat
from dsv4prof.trace.ranks import RankFile
from traces import Event, document, write

Both = tuple[Path, Path]


def _write_both(files: list[Path], folder: Path) -> Both:
    """(merged JSON, merged .pftrace) of rank files."""
    json_path, path = folder / "merged.json", folder / "merged.pftrace"
    with Merge() as merge:
        plan, refused = merge.look([RankFile(file) for file in files])
        assert not refused
        merge.write(plan, json_path)
        merge.write(plan, path, PftraceFormat())
    return json_path, path


@pytest.fixture
def both(tmp_path: Path) -> Callable[..., Both]:
    """Ranks of events -> the merged trace as JSON and as .pftrace."""

    def make(*ranks: list[Event]) -> Both:
        world = len(ranks)
        files = [
            write(tmp_path / f"rank{rank}.json", document(events, rank=rank, world=world))
            for rank, events in enumerate(ranks)
        ]
        return _write_both(files, tmp_path)

    return make


@pytest.fixture
def write_both() -> Callable[[list[Path], Path], Both]:
    return _write_both
