"""View: a trace in the Perfetto UI or in TensorBoard, served on this machine until it has been seen."""

from __future__ import annotations

import shlex
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from dsv4prof import __version__
from dsv4prof.api.merging import merge
from dsv4prof.api.sources import Source, resolve
from dsv4prof.api.words import plural
from dsv4prof.errors import MissingExtraError, UsageError
from dsv4prof.model.report import Check, Provenance, Report, Verdict
from dsv4prof.target.remote.interrupts import interruptible
from dsv4prof.trace.identity import identify
from dsv4prof.trace.unmerge import is_merged
from dsv4prof.view.browser import open_page
from dsv4prof.view.lifetime import Lifetime
from dsv4prof.view.links import Spot, deep_link, drop_link, window_around
from dsv4prof.view.server import ViewServer
from dsv4prof.view.slices import find_slice
from dsv4prof.view.tensorboard import TensorBoard, check_installed, make_log_folder
from dsv4prof.view.tensorboard_faults import notes as tensorboard_notes
from dsv4prof.view.ui import EXTRA, find_ui

IDLE_S = 60.0
LIMIT_S = 1800.0
_POLL_S = 0.2
# Rules about ranks that are not there, not whole, or not read.
_LOSSES = ("DSV501", "DSV502", "DSV503", "DSV504")
# Perfetto's format holds a merge for viewers only.
_NOT_ANALYSED = (".pftrace", ".pftrace.gz")
_SERVED_AS_IT_IS = (".pftrace", ".pftrace.gz", ".perfetto-trace")
Say = Callable[[str], None]


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """What to open a trace on: the slice number `index` of a `rank`, or a `spot`. None of both: the whole trace."""

    rank: int | None = None
    index: int | None = None
    spot: Spot | None = None


WHOLE = Place()


class _Shown(msgspec.Struct, frozen=True):
    """The file to show and what is to be said of it. `kept` is False for one that goes when the command ends."""

    path: Path
    notes: list[str] = []
    kept: bool = True

    @property
    def label(self) -> str:
        return str(self.path) if self.kept else "the merged trace"


def view(
    inputs: Sequence[str],
    *,
    sessions_dir: Path = Path("traces/local"),
    window: str | None = None,
    place: Place = WHOLE,
    port: int = 0,
    open_browser: bool | None = None,
    idle_s: float = IDLE_S,
    limit_s: float = LIMIT_S,
    jobs: int | None = 1,
    progress: Say = lambda _: None,
) -> Report:
    """Serve the Perfetto UI and a trace on 127.0.0.1 until the page has it, Ctrl-C, or `limit_s`; then report.

    Rank files are merged first: those of a session or folder into its merged file as `merge` does, others into a file
    that goes with the command (`jobs` as in `merge`). `open_browser` None: where somebody sits at a terminal.
    `progress` gets the address.
    Without the UI's package the report says where the file is and what to do with it.
    """
    with _scratch() as scratch, interruptible():
        shown = _prepare(inputs, sessions_dir, window, scratch, jobs, progress)
        spot, shown_window = _spot(shown.path, place)
        try:
            ui = find_ui()
        except MissingExtraError as missing:
            return _without_ui(inputs, shown, spot, shown_window, missing)
        lifetime = Lifetime(idle_s, limit_s)
        with ViewServer(shown.path, ui, lifetime, port=port) as server:
            ts, dur, pid, tid = (spot.ts_ns, spot.dur_ns, spot.pid, spot.tid) if spot else (None, None, None, None)
            link = deep_link(server.port, server.token, ts, dur, pid, tid, name=server.name, window=shown_window)
            ends = f"it stops {idle_s:g} s after the page has the trace and asks for nothing more, or with Ctrl-C"
            with _ended_by_hand() as stopped:
                _announce(link, f"{shown.label}{_of(spot)}", open_browser, progress)
                progress(ends)
                stopped.append(_wait(lifetime.over))
            reason = stopped[0]
        served = plural(lifetime.requests, "request")
    return _report(
        inputs,
        Check("shown", bool(lifetime.fetched) or None, f"{shown.label}{_of(spot)}: {served}, stopped: {reason}"),
        notes=shown.notes,
        data={
            **_facts(shown, spot), "link": link, "port": server.port, "requests": lifetime.requests,
            "fetched": lifetime.fetched, "ended_by": reason,
        },
    )  # fmt: skip


def view_tensorboard(
    inputs: Sequence[str],
    *,
    sessions_dir: Path = Path("traces/local"),
    window: str | None = None,
    port: int = 0,
    open_browser: bool | None = None,
    limit_s: float = LIMIT_S,
    progress: Say = lambda _: None,
) -> Report:
    """Serve rank files in TensorBoard's PyTorch plugin on 127.0.0.1 until Ctrl-C, its own end, or `limit_s`.

    Raises MissingExtraError without the packages, UsageError for a merged trace (the plugin wants a file a rank).
    """
    check_installed()
    source = resolve(inputs, sessions_dir, window=window)
    merged = next((path for path in _local(source) if is_merged(path)), None)
    if merged is not None:
        raise UsageError(f"{merged} is merged: TensorBoard reads a file a rank", hint="name the session or rank files")
    known = tensorboard_notes()
    with _scratch() as scratch, interruptible():
        run = source.session.id if source.session is not None else Path(source.label).name
        links = make_log_folder(scratch / "log", _ranked(source), run=run)
        progress(f"starting TensorBoard on {plural(len(links), 'rank file')}")
        board = TensorBoard(scratch / "log", scratch, port=port)
        try:
            for line in known:
                progress(line)
            began = time.monotonic()
            with _ended_by_hand() as stopped:
                _announce(board.page, plural(len(links), "rank file"), open_browser, progress)
                progress(f"reading the files takes a while; Ctrl-C ends this, or {limit_s:g} s")
                stopped.append(_wait(lambda: _board_over(board, time.monotonic() - began, limit_s)))
            reason = stopped[0]
            runs = [] if board.ended() else board.runs()[0]
        finally:
            board.close()
    return _report(
        inputs,
        Check("shown", None if board.failed else True, f"{plural(len(links), 'rank file')}, stopped: {reason}"),
        notes=[],
        data={
            "known": known, "link": board.page, "files": [str(path) for path in source.files], "runs": runs,
            "ended_by": reason,
        },
    )  # fmt: skip


@contextmanager
def _scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="dsv4prof-view-") as folder:
        yield Path(folder)


def _prepare(
    inputs: Sequence[str], sessions_dir: Path, window: str | None, scratch: Path, jobs: int | None, progress: Say
) -> _Shown:
    """The one file to show; made when there is none."""
    source = resolve(inputs, sessions_dir, window=window)
    only = source.files[0] if len(source.files) == 1 and source.folder is None else None
    if isinstance(only, Path) and (only.name.endswith(_SERVED_AS_IT_IS) or is_merged(only)):
        return _Shown(only)
    target = source.folder / source.merged_name if source.folder is not None else scratch / source.merged_name
    if source.folder is not None and _is_fresh(target, _local(source)):
        return _Shown(target, [*source.notes, *(f"rank {rank}: {why}" for rank, why in sorted(source.lost.items()))])
    progress(f"merging {plural(len(source.files), 'rank file')} into {target}")
    report = merge(
        inputs, sessions_dir=sessions_dir, window=window, allow_partial=True, jobs=jobs,
        output=None if source.folder is not None else target,
    )  # fmt: skip
    partial = [finding.message for finding in report.findings if finding.code in _LOSSES]
    merged = f"merged {plural(len(source.files), 'rank file')} for this"
    return _Shown(target, [merged, *source.notes, *partial], kept=source.folder is not None)


def _local(source: Source) -> list[Path]:
    """Its files. Raises UsageError when some lie elsewhere: only a merge reads those."""
    here = [path for path in source.files if isinstance(path, Path)]
    if len(here) < len(source.files):
        raise UsageError("the files are not on this machine", hint="merge them first: dsv4prof merge URL... -o FILE")
    return here


def _is_fresh(merged: Path, files: Sequence[Path]) -> bool:
    """Whether a merged file is there, ours, and no older than what it was made of."""
    if not merged.is_file() or not is_merged(merged):
        return False
    made = merged.stat().st_mtime_ns
    return all(path.stat().st_mtime_ns <= made for path in files)


def _spot(path: Path, place: Place) -> tuple[Spot | None, tuple[int, int] | None]:
    """The slice to select and the window to show around it."""
    if place.rank is not None and place.index is not None:
        found = find_slice(path, place.rank, place.index)
        return found.spot, window_around(found.spot, first_ns=found.first_ns, last_ns=found.last_ns)
    if place.spot is not None:
        return place.spot, window_around(place.spot)
    return None, None


def _of(spot: Spot | None) -> str:
    if spot is None:
        return ""
    return f", on {spot.name or 'the slice'} at {spot.ts_ns / 1e6:.6f} ms"


def _announce(link: str, what: str, open_browser: bool | None, progress: Say) -> None:
    progress(f"showing {what}")
    progress(link)
    progress("opened in the browser" if open_page(link, open_browser) else "open this address in a browser")


@contextmanager
def _ended_by_hand() -> Iterator[list[str]]:
    """From the address on, an interrupt is how somebody says that they have seen enough: a reason like others."""
    reasons: list[str] = []
    try:
        yield reasons
    except KeyboardInterrupt:
        reasons.append("interrupted")


def _wait(over: Callable[[], str | None]) -> str:
    """Why it ended."""
    while (reason := over()) is None:
        time.sleep(_POLL_S)
    return reason


def _board_over(board: TensorBoard, seconds: float, limit_s: float) -> str | None:
    if board.ended():
        return f"TensorBoard ended by itself with status {board.process.returncode}"
    return f"its limit of {limit_s:g} s has passed" if seconds >= limit_s else None


def _ranked(source: Source) -> list[tuple[int, str | None, Path]]:
    """Each file with its rank, and its host where the session knows one; a place in the list where no name tells."""
    hosts: dict[str, tuple[int, str | None]] = {}
    for record in source.session.ranks if source.session is not None else []:
        known = (record.coordinates.rank, record.coordinates.host)
        hosts |= {Path(name).name: known for name in record.traces}
    ranked: dict[int, tuple[int, str | None, Path]] = {}
    for number, path in enumerate(_local(source)):
        rank, host = hosts.get(path.name, (identify(str(path), {}).rank, None))
        if rank is None or rank in ranked:
            rank = next(free for free in range(number, number + len(source.files) + 1) if free not in ranked)
        ranked[rank] = (rank, host, path)
    return list(ranked.values())


def _without_ui(
    inputs: Sequence[str],
    shown: _Shown,
    spot: Spot | None,
    window: tuple[int, int] | None,
    missing: MissingExtraError,
) -> Report:
    """Nothing is served; the file can be opened elsewhere."""
    link = drop_link(spot, window=window)
    where = str(shown.path)
    if not shown.kept:
        where = f"merge them first: dsv4prof merge {shlex.join(inputs)} -o merged.json.gz"
    return _report(
        inputs,
        Check("shown", None, where),
        notes=[
            *shown.notes,
            f"offline: pip install 'dsv4prof[{EXTRA}]', then again; or open {link} and drop the file on the page",
            "a page opened this way reads the file in the browser and uploads nothing",
        ],
        data={**_facts(shown, spot), "link": link, "missing": missing.message},
    )


def _facts(shown: _Shown, spot: Spot | None) -> dict[str, Any]:
    file = str(shown.path) if shown.kept else None
    return {"file": file, "slice": None if spot is None else msgspec.to_builtins(spot)}


def _report(inputs: Sequence[str], check: Check, *, notes: list[str], data: dict[str, Any]) -> Report:
    return Report(
        kind="view",
        provenance=Provenance(command="view", inputs=list(inputs), versions={"dsv4prof": __version__}),
        checks=[check],
        notes=notes,
        verdict=Verdict(exit_code=0, summary=check.message),
        next_command=None if inputs[0].endswith(_NOT_ANALYSED) else f"dsv4prof analyze {shlex.join(inputs)}",
        data=data,
    )
