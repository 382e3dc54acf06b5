"""A slice of a merged trace by rank and number."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsv4prof.api import merge
from dsv4prof.errors import InputError, UsageError
from dsv4prof.view.links import Spot
from dsv4prof.view.slices import find_slice, parse_slice
from traces import document, kernel, op, write


@pytest.fixture(scope="module")
def merged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two ranks whose slices start and end alike; an overlap on rank 1's GPU."""
    folder = tmp_path_factory.mktemp("ranks")
    for rank in range(2):
        events = [op("aten::mm", 10, 5), op("aten::add", 20, 5), kernel("gemm", 30, 8)]
        events += [kernel("late", 35, 8)] if rank else []
        write(folder / f"rank{rank}.json", document(events, rank=rank, world=2))
    merge([str(folder)])
    return folder / "merged.json.gz"


def test_a_slice_is_found_on_its_own_rank(merged: Path) -> None:
    first, second = (find_slice(merged, rank, 1) for rank in range(2))
    assert (first.spot.name, first.spot.ts_ns, first.spot.dur_ns) == ("aten::add", 10_000, 5_000)
    assert (second.spot.ts_ns, second.spot.dur_ns, second.spot.name) == (10_000, 5_000, "aten::add")
    assert first.spot.pid != second.spot.pid
    assert (first.first_ns, first.last_ns) == (second.first_ns, second.last_ns) == (0, 33_000)


def test_a_slice_on_an_extra_lane_keeps_that_lanes_number(merged: Path) -> None:
    spots = [find_slice(merged, 1, index).spot for index in range(4)]
    gemm, late = (next(spot for spot in spots if spot.name == name) for name in ("gemm", "late"))
    assert isinstance(late, Spot)
    assert late.pid == gemm.pid
    assert late.tid != gemm.tid


def test_what_is_not_there_is_said_with_what_is(merged: Path) -> None:
    with pytest.raises(UsageError, match="rank 1 has 4 slices") as number:
        find_slice(merged, 1, 4)
    assert number.value.hint == "they count from 0"
    with pytest.raises(UsageError, match="no rank 2") as rank:
        find_slice(merged, 2, 0)
    assert rank.value.hint == "it has 0, 1"


@pytest.mark.parametrize("content", [b"{}", b"no", b'{"traceEvents":[]}', b'{"traceEvents":['])
def test_another_file_is_refused(content: bytes, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no merged trace"):
        find_slice(write(tmp_path / "x.json", content), 0, 0)


@pytest.mark.parametrize("text", ["", "1", "1:", ":1", "a:1", "1:-1", "-1:1", "1:2:3", "1.5:2"])
def test_a_choice_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="RANK:INDEX"):
        parse_slice(text)
    assert parse_slice("12:0") == (12, 0)
