"""`dsv4prof view`: a trace in the Perfetto UI, offline, on a slice; or a session in TensorBoard."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dsv4prof.cli import console
from dsv4prof.cli.help import add
from dsv4prof.cli.options import Format, SessionsDir, ShowSettings, choose
from dsv4prof.errors import UsageError

if TYPE_CHECKING:
    from dsv4prof.api.viewing import Place

NAMES = ("sessions_dir", "format")
_IDLE_S = 60.0
_LIMIT_S = 1800.0


def register(app: typer.Typer) -> None:
    add(app, "view", view, "dsv4prof view latest", "dsv4prof view merged.json.gz --slice 2:1500")


def view(
    inputs: Annotated[
        list[str], typer.Argument(metavar="INPUTS", help="A session's id, a merged trace, or rank files")
    ],
    slice: Annotated[
        str | None, typer.Option("--slice", metavar="RANK:INDEX", help="Open on this slice of a rank, from 0")
    ] = None,
    ts: Annotated[
        int | None, typer.Option("--ts", min=0, metavar="NS", help="Open on the slice that starts here")
    ] = None,
    dur: Annotated[int | None, typer.Option("--dur", min=0, metavar="NS", help="With --ts: its length")] = None,
    pid: Annotated[int | None, typer.Option("--pid", min=0, metavar="P", help="With --ts: its process")] = None,
    tid: Annotated[int | None, typer.Option("--tid", min=0, metavar="T", help="With --ts: its thread")] = None,
    tensorboard: Annotated[
        bool, typer.Option("--tensorboard", help="Rank files in TensorBoard's PyTorch plugin")
    ] = False,
    window: Annotated[
        str | None, typer.Option("--window", metavar="NAME", help="Which window of several; default: the first")
    ] = None,
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, metavar="N", help="Of 127.0.0.1; 0: a free one [0]")
    ] = 0,
    open_browser: Annotated[
        bool | None, typer.Option("--open/--no-open", help="Open a browser [on a terminal]", show_default=False)
    ] = None,
    idle: Annotated[
        float, typer.Option("--idle", min=0, metavar="S", help="Stop so long after the last request [60]")
    ] = _IDLE_S,
    limit: Annotated[
        float, typer.Option("--limit", min=0, metavar="S", help="Stop after so long in any case [1800]")
    ] = _LIMIT_S,
    sessions_dir: SessionsDir = None,
    format: Format = None,
    show_settings: ShowSettings = False,
) -> int:
    """Show a trace in the Perfetto UI, offline."""
    chosen = choose(NAMES, {"sessions_dir": sessions_dir, "format": format}, show=show_settings)
    from dsv4prof.api.viewing import view as show
    from dsv4prof.api.viewing import view_tensorboard

    place = _place(slice, ts=ts, dur=dur, pid=pid, tid=tid)
    root = Path(chosen["sessions_dir"])
    if tensorboard:
        if slice is not None or ts is not None:
            raise UsageError("TensorBoard cannot be opened on a slice", hint="leave out --tensorboard, or the slice")
        report = view_tensorboard(
            inputs, sessions_dir=root, window=window, port=port, open_browser=open_browser, limit_s=limit,
            progress=console.note,
        )  # fmt: skip
    else:
        report = show(
            inputs, sessions_dir=root, window=window, place=place, port=port, open_browser=open_browser, idle_s=idle,
            limit_s=limit, jobs=None, progress=console.note,
        )  # fmt: skip
    return console.emit(report, chosen["format"])


def _place(slice: str | None, *, ts: int | None, dur: int | None, pid: int | None, tid: int | None) -> Place:
    """What to open on. Raises UsageError for options that do not go together."""
    from dsv4prof.api.viewing import Place
    from dsv4prof.view.links import Spot
    from dsv4prof.view.slices import parse_slice

    if slice is not None and ts is not None:
        raise UsageError("--slice and --ts both name a slice", hint="give one of them")
    if ts is None and any(value is not None for value in (dur, pid, tid)):
        raise UsageError("--dur, --pid and --tid say more of a slice that --ts names", hint="give --ts as well")
    if (pid is None) != (tid is None):
        raise UsageError("--pid and --tid name a row together", hint="give both or none")
    if slice is not None:
        rank, index = parse_slice(slice)
        return Place(rank=rank, index=index)
    return Place(spot=Spot(ts, dur, pid, tid) if ts is not None else None)
