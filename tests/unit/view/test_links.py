"""The address of a slice: what the UI reads in it, and that nothing but numbers gets into its query."""

from __future__ import annotations

import json
import re
from urllib.parse import parse_qs, urlsplit

import pytest

from dsv4prof.view.links import GPU_ROWS, Spot, deep_link, drop_link, window_around

MS = 1_000_000


def fields(link: str) -> dict[str, str]:
    fragment = urlsplit(link).fragment
    assert fragment.startswith("!/?")
    return {key: value for key, [value] in parse_qs(fragment[3:], strict_parsing=True).items()}


def test_a_link_names_page_trace_slice_window_and_rows() -> None:
    link = deep_link(4000, "tok-en_", 1500, 20, name="a b&c.json.gz", window=(1000, 2000))
    assert link.startswith("http://127.0.0.1:4000/tok-en_/#!/?")
    told = fields(link)
    assert told["url"] == "http://127.0.0.1:4000/tok-en_/trace/a%20b%26c.json.gz"
    assert (told["ts"], told["dur"]) == ("1500", "20")
    assert (told["visStart"], told["visEnd"]) == ("1000", "2000")
    assert json.loads(told["startupCommands"]) == [{"id": "dev.perfetto.PinTracksByRegex", "args": [GPU_ROWS]}]


def test_a_row_narrows_the_start_because_the_ui_looks_at_no_process() -> None:
    told = fields(deep_link(1, "t", 1500, 20, 3, 7))
    assert re.fullmatch(r"1500 and track_id in \(select .* where pid=3 and tid=7\)", told["ts"])
    assert (told["pid"], told["tid"]) == ("3", "7")
    assert fields(deep_link(1, "t", 1500, 20, 3))["ts"] == "1500"


@pytest.mark.parametrize("place", [{"pid": "0) or (1"}, {"ts_ns": "1 or 1"}])
def test_only_numbers_get_into_the_query(place: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="format code 'd'"):
        deep_link(1, "t", **{"ts_ns": 1, "dur_ns": 1, "pid": 1, "tid": 1, **place})


def test_a_link_without_a_slice_opens_the_whole_trace() -> None:
    told = fields(deep_link(1, "t", pin=None))
    assert set(told) == {"url", "hideSidebar"}


def test_a_file_that_is_dropped_on_the_public_page_opens_on_the_slice() -> None:
    link = drop_link(Spot(5, 6), window=(1, 9))
    assert link.startswith("https://ui.perfetto.dev/#!/?")
    told = fields(link)
    assert (told["ts"], told["dur"], told["visEnd"]) == ("5", "6", "9")
    assert "url" not in told


@pytest.mark.parametrize(
    ("name", "pinned"),
    [("stream 7 7", True), ("stream 7 (lane 2) 1000000001", True), ("[rank 3] GPU 3 stream 12", True),
     ("stream 0", True), ("[rank 0] GPU 0 2", False), ("thread 917 (python3) 917", False), ("upstream 7", False)],
)  # fmt: skip
def test_streams_are_pinned_and_their_headings_are_not(name: str, pinned: bool) -> None:
    assert bool(re.search(GPU_ROWS, name)) == pinned


@pytest.mark.parametrize(
    ("spot", "bounds", "window"),
    [
        (Spot(10 * MS, MS), {}, (8 * MS, 13 * MS)),
        (Spot(10 * MS, 1), {}, (10 * MS - 20_000, 10 * MS + 20_001)),
        (Spot(5, 10), {}, (0, 20_015)),
        (Spot(5, 10), {"last_ns": 40}, (0, 40)),
        (Spot(500, None), {"first_ns": 400, "last_ns": 450}, (400, 450)),
        (Spot(0, 0), {"last_ns": 0}, (0, 1)),
    ],
)
def test_a_window_lies_within_the_trace_and_is_never_empty(
    spot: Spot, bounds: dict[str, int], window: tuple[int, int]
) -> None:
    assert window_around(spot, **bounds) == window
