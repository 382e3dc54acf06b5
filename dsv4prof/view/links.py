"""The address that opens the Perfetto UI on one slice of one trace.

What the UI makes of the address was read in its source and tried in version 52: it selects the first slice whose start
and length fit, and looks at neither process nor thread. Two ranks often have slices that start and end alike, so the
condition on the start carries one on the row as well: the UI puts that text into its query as it is.
"""

from __future__ import annotations

import json
from urllib.parse import quote, urlencode

import msgspec

LOOPBACK = "127.0.0.1"
_PUBLIC_UI = "https://ui.perfetto.dev"
# The rows of GPU streams, whatever stands around the word; their headings are rows too, and would double them.
GPU_ROWS = r"\bstream -?\d+"
_PIN = "dev.perfetto.PinTracksByRegex"
# What is shown around a slice: its own length on either side, and enough to see neighbours of a short one.
_AROUND = 2
_LEAST_AROUND_NS = 20_000


class Spot(msgspec.Struct, frozen=True):
    """A slice as the importer has it: ns since the zero of the trace file, and the file's process and thread number.

    In a merged JSON trace zero is the first event. `name` is for people.
    """

    ts_ns: int
    dur_ns: int | None = None
    pid: int | None = None
    tid: int | None = None
    name: str = ""


def window_around(spot: Spot, *, first_ns: int = 0, last_ns: int | None = None) -> tuple[int, int]:
    """What to show around a slice, ns: from, to. Kept within the trace, because the UI ignores a window that is not."""
    dur = spot.dur_ns or 0
    around = max(dur * _AROUND, _LEAST_AROUND_NS)
    low, high = max(spot.ts_ns - around, first_ns), spot.ts_ns + dur + around
    return low, high if last_ns is None else max(min(high, last_ns), low + 1)


def base_address(port: int, token: str) -> str:
    """Where the page lies: below a path that only who was told knows."""
    return f"http://{LOOPBACK}:{port}/{token}/"


def trace_address(port: int, token: str, name: str) -> str:
    """Where the page fetches the trace."""
    return f"{base_address(port, token)}trace/{quote(name)}"


def deep_link(
    port: int,
    token: str,
    ts_ns: int | None = None,
    dur_ns: int | None = None,
    pid: int | None = None,
    tid: int | None = None,
    *,
    name: str = "merged.json.gz",
    window: tuple[int, int] | None = None,
    pin: str | None = GPU_ROWS,
) -> str:
    """The address that opens the trace `name` of a `view` server, with the slice at `ts_ns` selected.

    Times are ns as the importer has them (see `Spot`); `window` is what to show, from and to; `pin` is a regular
    expression (JavaScript's) of rows to pin to the top, by their names.
    """
    spot = None if ts_ns is None else Spot(ts_ns, dur_ns, pid, tid)
    query = {"url": trace_address(port, token, name), **_query(spot, window, pin)}
    return f"{base_address(port, token)}#!/?{urlencode(query, quote_via=quote)}"


def drop_link(spot: Spot | None = None, *, window: tuple[int, int] | None = None, pin: str | None = GPU_ROWS) -> str:
    """The public UI's address that selects the slice in the file that is dropped on the page."""
    return f"{_PUBLIC_UI}/#!/?{urlencode(_query(spot, window, pin), quote_via=quote)}"


def _query(spot: Spot | None, window: tuple[int, int] | None, pin: str | None) -> dict[str, str]:
    # What the side bar offers is about other traces.
    query = {"hideSidebar": "true"}
    if spot is not None:
        numbers = {"dur": spot.dur_ns, "pid": spot.pid, "tid": spot.tid}
        query["ts"] = _start(spot)
        query |= {key: str(value) for key, value in numbers.items() if value is not None}
    if window is not None:
        query["visStart"], query["visEnd"] = str(window[0]), str(window[1])
    if pin:
        query["startupCommands"] = json.dumps([{"id": _PIN, "args": [pin]}], separators=(",", ":"))
    return query


def _start(spot: Spot) -> str:
    """The start, narrowed to one row where that is known. Numbers only, so that nothing else gets into the query."""
    if spot.pid is None or spot.tid is None:
        return f"{spot.ts_ns:d}"
    rows = "select t.id from thread_track t join thread using(utid) join process using(upid)"
    return f"{spot.ts_ns:d} and track_id in ({rows} where pid={spot.pid:d} and tid={spot.tid:d})"
