"""What a user may name as input: a session (id, prefix, folder, `latest`), a folder of rank files, or trace files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from dsv4prof.api.finding import TRACE_SUFFIXES, find_folder
from dsv4prof.errors import InputError, NotATraceError, UsageError
from dsv4prof.model.finding import Finding
from dsv4prof.model.phase import Phase
from dsv4prof.model.session import MANIFEST_NAME, EndedBy, Outcome, RankRecord, Session
from dsv4prof.model.trace import MergedTrace
from dsv4prof.recorder.sessions import open_session
from dsv4prof.rules import get
from dsv4prof.trace.chunks import is_url, listed
from dsv4prof.trace.identity import Naming
from dsv4prof.trace.losses import losses
from dsv4prof.trace.merge import load_readable, merge
from dsv4prof.trace.part import parts_of
from dsv4prof.trace.ranks import RankFile, RankSource
from dsv4prof.trace.unmerge import MergedHeader, is_merged, load_merged, read_header

MERGED_NAME = "merged.json.gz"


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """The rank files to read, and the session they belong to when there is one; `folder` when all of it was named.

    `lost` says for each rank of the session without a whole trace why that is; `skipped` ranks were not to be recorded.
    `window` is the one of the session's `windows` whose files these are.
    """

    files: list[Path | str]
    folder: Path | None = None
    session: Session | None = None
    lost: dict[int, str] = {}
    skipped: list[int] = []
    window: str = ""
    windows: list[str] = []

    def is_other(self, path: str, reads_well: bool) -> bool:
        """Whether a refused file is only a neighbour: it lay in a folder that was named, and is no trace at all."""
        return reads_well and self.folder is not None and Path(path).parent == self.folder and self.session is None

    @property
    def merged_name(self) -> str:
        """Each window of a session has a merged trace of its own."""
        if not self.window:
            return MERGED_NAME
        return MERGED_NAME.replace(".", f".{self.window}.", 1)

    @property
    def notes(self) -> list[str]:
        """What else there is to read, in sentences."""
        others = [name for name in self.windows if name != self.window]
        if not others or self.session is None:
            return []
        more = f"dsv4prof analyze {self.session.id} --window {others[0]}"
        return [f"shown: window {self.window}; also recorded: {', '.join(others)} ({more})"]

    @property
    def again(self) -> str:
        """The session, and the window where there are several, as they are named on a command line."""
        assert self.session is not None, "only a session has a name"
        return self.session.id + (f" --window {self.window}" if len(self.windows) > 1 else "")

    @property
    def label(self) -> str:
        """What was named; of several windows the one whose figures follow."""
        name = str(self.folder or self.files[0])
        return f"{name}, window {self.window}" if len(self.windows) > 1 else name


class Gathered(msgspec.Struct, frozen=True, kw_only=True):
    """All ranks of a source on one clock, and what is wrong with them: by rank, and files that are no use at all."""

    trace: MergedTrace
    faults: dict[int, str]
    unreadable: list[str]

    @property
    def whole(self) -> bool:
        return not self.faults and not self.unreadable

    def findings(self, source: Source) -> list[Finding]:
        """What the trace itself cannot tell: files that were left out, ranks that ended early."""
        return source_findings(source, self.unreadable)


def source_findings(source: Source, unreadable: Sequence[str]) -> list[Finding]:
    """What a trace itself cannot tell: files that were left out, ranks that ended early."""
    lost = [_finding("DSV504", f"rank {rank}: {why}", rank=rank) for rank, why in sorted(source.lost.items())]
    return [*lost, *(_finding("DSV503", f"left out: {why}", file=why) for why in unreadable)]


def lost_before(source: Source) -> MergedHeader | None:
    """What an earlier merge, where that is the input, says that it lacks."""
    merged = len(source.files) == 1 and is_merged(source.files[0])
    return read_header(source.files[0]) if merged else None


def rank_sources(source: Source, naming: Naming) -> list[RankSource]:
    """What to read the ranks from. Raises InputError when a merged file is damaged."""
    if len(source.files) == 1 and is_merged(source.files[0]):
        return [*parts_of(source.files[0])]
    return [RankFile(str(path), naming=naming) for path in sorted(set(source.files), key=str)]


def gather(source: Source) -> Gathered:
    """Read what can be read. Raises InputError when that is nothing."""
    errors: list[InputError] = []
    if len(source.files) == 1 and is_merged(source.files[0]):
        trace = load_merged(source.files[0])
    else:
        traces, errors = load_readable(source.files)
        if not traces:
            raise errors[0]
        if source.folder is not None and source.session is None:
            errors = [error for error in errors if not isinstance(error, NotATraceError)]
        trace = merge(traces)
    if source.skipped:
        missing = [rank for rank in trace.missing_ranks if rank not in source.skipped]
        trace = msgspec.structs.replace(trace, missing_ranks=missing)
    return Gathered(
        trace=trace, faults={**_faults(trace), **source.lost}, unreadable=[error.message for error in errors]
    )


def resolve(inputs: Sequence[str], sessions_dir: Path, *, window: str | None = None) -> Source:
    """What `inputs` name; of a session with several windows the files of `window`, or of the first one.

    Raises InputError when it is nothing that can be read, UsageError when a name is empty or a window is not there.
    """
    if not all(inputs):
        raise UsageError("an input is an empty text", hint="give rank files, one folder or one session")
    if any(is_url(name) for name in inputs):
        return _remote(inputs)
    if len(inputs) == 1:
        path = Path(inputs[0])
        if path.is_dir() and (path / MANIFEST_NAME).is_file():
            return _session(path, window)
        if not path.exists():
            return _session(find_folder(inputs[0], sessions_dir), window)
    if window is not None:
        raise UsageError(
            f"{inputs[0]} is no session and has no window {window!r}",
            hint="leave --window out, name a session, or give a time such as 10ms:50ms",
        )
    if len(inputs) == 1 and Path(inputs[0]).is_dir():
        return _folder(Path(inputs[0]))
    missing = [name for name in inputs if not Path(name).is_file()]
    if missing:
        raise InputError(f"{missing[0]} is no file", hint="give rank files, one folder or one session")
    files = [Path(name) for name in inputs]
    return Source(files=[*files], session=_session_of(files))


def _remote(inputs: Sequence[str]) -> Source:
    """Files of which some lie elsewhere."""
    files: list[Path | str] = []
    for name in inputs:
        found = listed(name, TRACE_SUFFIXES) if is_url(name) else [Path(name)]
        # In a folder an earlier merge is no rank.
        files += [path for path in found if found == [name] or not Path(str(path)).name.startswith((".", "merged"))]
    if not files:
        raise InputError(f"{inputs[0]} holds no trace", hint="name the rank files themselves")
    return Source(files=files)


def _session_of(files: Sequence[Path]) -> Session | None:
    """The session in whose folder all of `files` lie: its manifest has call lines that no trace has.

    `Source.folder` stays None: what a part of a session gives is not the session's merged trace.
    """
    folders = {path.resolve().parent for path in files}
    folder = next(iter(folders))
    if len(folders) > 1 or not (folder / MANIFEST_NAME).is_file():
        return None
    try:
        return open_session(folder)
    except InputError:
        # The traces can be read without their manifest.
        return None


def _session(folder: Path, window: str | None) -> Source:
    session = open_session(folder)
    named = {w.name for record in session.ranks for w in record.windows if w.trace is not None}
    windows = sorted(named, key=_order)
    if window is not None and window not in windows:
        known = ", ".join(name or "(unnamed)" for name in windows) or "none"
        raise UsageError(f"session {session.id} has no window {window!r}", hint=f"recorded: {known}")
    chosen = window if window is not None else next(iter(windows), "")
    files, lost = [], {}
    recorded = [record for record in session.ranks if record.outcome is not Outcome.SKIPPED]
    for record in recorded:
        path = _trace_of(record, folder, chosen)
        if path is not None:
            files.append(path)
        if path is None or not (record.outcome is Outcome.COMPLETE or _cut_by_limit(record, chosen)):
            lost[record.coordinates.rank] = _why_lost(record, chosen)
    if not files:
        reason = session.reason or next(iter(lost.values()), "nothing was recorded")
        message = f"session {session.id} has no trace to read: {reason}"
        busy = session.outcome is Outcome.RECORDING
        raise InputError(message, hint="wait until it ends" if busy else "dsv4prof sessions list shows others")
    skipped = [record.coordinates.rank for record in session.ranks if record.outcome is Outcome.SKIPPED]
    return Source(
        files=[*files], folder=folder, session=session, lost=lost, skipped=skipped, window=chosen, windows=windows
    )


def _order(window: str) -> tuple[int, list[int], str]:
    """Stages in the order of a step, whichever came first; numbers by their size."""
    stage, _, number = window.partition("-")
    places = [place for place, phase in enumerate(Phase) if phase.value == stage]
    return (places or [len(Phase)])[0], [int(each) for each in (number, window) if each.isdecimal()], window


def _trace_of(record: RankRecord, folder: Path, window: str) -> Path | None:
    """A rank's trace, if it is there. A manifest from elsewhere may name files outside its folder; those are none."""
    recorded = record.window(window)
    name = recorded.trace if recorded is not None else None
    if name is None or Path(name).is_absolute() or ".." in Path(name).parts:
        return None
    path = folder / name
    return path if path.is_file() else None


def _cut_by_limit(record: RankRecord, window: str) -> bool:
    """Shorter than planned and whole: a limit that the plan itself sets ended the window."""
    recorded = record.window(window)
    return recorded is not None and recorded.ended_by in (EndedBy.SIZE_LIMIT, EndedBy.TIME_LIMIT)


def _why_lost(record: RankRecord, window: str) -> str:
    if record.reason:
        return record.reason
    if record.outcome is Outcome.RECORDING:
        return "still recording"
    recorded = record.window(window)
    if recorded is None or recorded.trace is None:
        return f"it recorded no window {window}" if window else "served without --profile"
    return f"its file {recorded.trace} is not in the folder"


def _folder(folder: Path) -> Source:
    files = sorted(
        path
        for path in folder.iterdir()
        if path.is_file() and path.name.endswith(TRACE_SUFFIXES) and not path.name.startswith((".", "merged"))
    )
    if not files:
        raise InputError(f"{folder} holds no trace (*.json, *.json.gz)", hint="name the rank files themselves")
    return Source(files=[*files], folder=folder)


def _faults(trace: MergedTrace) -> dict[int, str]:
    faults = dict.fromkeys(trace.missing_ranks, "missing: no file for it")
    for rank in trace.ranks:
        lost = losses(rank.trace)
        if lost:
            faults[rank.trace.coordinates.rank] = "; ".join(lost)
    return faults


def _finding(code: str, message: str, **evidence: object) -> Finding:
    return Finding(
        code=code,
        severity=get(code).severity,
        message=message,
        evidence=evidence,
        cost_reason="not a matter of time",
        fingerprint=f"{code}-{evidence.get('rank', '')}",
    )
