"""Files that are missing, empty or no JSON, most of them without an error."""

from __future__ import annotations

import resource
import shutil
from contextlib import suppress
from pathlib import Path

from dsv4prof.recorder.faults.fault import Expected, Fault
from dsv4prof.recorder.faults.ours import plan
from dsv4prof.recorder.faults.work import TRACE, profiler, save, work

_QUOTED = 'say "hi" \\ there'
_CONTROLLED = "two\nlines \x01 and a bell \x07"
# Many operators, so that no buffer of a file swallows the limit.
_MANY = 3000
_ROOM = 20_000


def _fill_disk() -> None:
    """No file may grow beyond a few kB any more: what a full disk does to a writer, without one."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (_ROOM, _ROOM))


def _export_twice_plain(folder: Path) -> None:
    with profiler() as one:
        work()
    save(one, folder / "first-trace.json")
    save(one, folder / "second-trace.json")


def _export_twice_ours(folder: Path) -> None:
    """A second trace for the same place of the same session."""
    from dsv4prof.recorder.sessions import create_session
    from dsv4prof.recorder.standalone import record

    session = create_session(folder, name="twice", world_size=1)
    for _ in range(2):
        with record(plan(), session=session):
            work()


def _export_again_plain(folder: Path) -> None:
    with profiler() as one:
        work()
    save(one, folder / "missing" / TRACE)
    save(one, folder / TRACE)


def _export_again_ours(folder: Path) -> None:
    """The folder goes away in the window; a second attempt to save is made."""
    from dsv4prof.errors import Dsv4profError
    from dsv4prof.recorder.standalone import record

    with record(plan(), root=folder / "going") as recorder:
        work()
        shutil.rmtree(folder / "going")
        with suppress(Dsv4profError):
            recorder.stop()


def _missing_directory_plain(folder: Path) -> None:
    with profiler() as one:
        work()
    save(one, folder / "not" / "there" / TRACE)


def _missing_directory_ours(folder: Path) -> None:
    from dsv4prof.recorder.standalone import record

    with record(plan(), root=folder / "not" / "there"):
        work()


def _full_disk_plain(folder: Path) -> None:
    with profiler() as one:
        work(_MANY)
    _fill_disk()
    save(one, folder / "trace.json.gz")


def _full_disk_ours(folder: Path) -> None:
    from dsv4prof.recorder.standalone import record

    with record(plan(), root=folder):
        work(_MANY)
        _fill_disk()


def _quote_plain(folder: Path) -> None:
    _named_plain(folder, _QUOTED)


def _quote_ours(folder: Path) -> None:
    _named_ours(folder, _QUOTED)


def _control_plain(folder: Path) -> None:
    _named_plain(folder, _CONTROLLED)


def _control_ours(folder: Path) -> None:
    _named_ours(folder, _CONTROLLED)


def _named_plain(folder: Path, name: str) -> None:
    from torch.profiler import record_function

    with profiler() as one, record_function(name):
        work()
    save(one, folder / TRACE)


def _named_ours(folder: Path, name: str) -> None:
    from torch.profiler import record_function

    from dsv4prof.recorder.standalone import record

    with record(plan(), root=folder, name=name), record_function(name):
        work()


def _metadata_plain(folder: Path) -> None:
    with profiler() as one:
        work()
        one.add_metadata("note", _CONTROLLED)
    save(one, folder / TRACE)


def _metadata_ours(folder: Path) -> None:
    """What a trace says of itself: its session's name and its host."""
    from dsv4prof.model.session import RankCoordinates
    from dsv4prof.recorder.standalone import record

    me = RankCoordinates(rank=0, world_size=1, host=_CONTROLLED + _QUOTED)
    with record(plan(), root=folder, name=_CONTROLLED, coordinates=me):
        work()


FAULTS = (
    Fault(
        name="export-twice",
        sentence="export the same recording twice",
        plain=_export_twice_plain,
        ours=_export_twice_ours,
        expected=Expected.TRACE_AND_ERROR,
    ),
    Fault(
        name="export-again",
        sentence="export again after an export that failed",
        plain=_export_again_plain,
        ours=_export_again_ours,
        expected=Expected.ERROR,
    ),
    Fault(
        name="missing-directory",
        sentence="export to a directory that is not there",
        plain=_missing_directory_plain,
        ours=_missing_directory_ours,
        expected=Expected.TRACE,
    ),
    Fault(
        name="full-disk",
        sentence="the disk is full when the trace is compressed",
        plain=_full_disk_plain,
        ours=_full_disk_ours,
        expected=Expected.ERROR,
        operators=_MANY,
    ),
    Fault(
        name="quote-in-name",
        sentence="a quote and a backslash in an annotation's name",
        plain=_quote_plain,
        ours=_quote_ours,
        expected=Expected.TRACE,
    ),
    Fault(
        name="control-character",
        sentence="control characters in an annotation's name",
        plain=_control_plain,
        ours=_control_ours,
        expected=Expected.TRACE,
    ),
    Fault(
        name="metadata",
        sentence="control characters in the trace's metadata",
        plain=_metadata_plain,
        ours=_metadata_ours,
        expected=Expected.TRACE,
    ),
)
