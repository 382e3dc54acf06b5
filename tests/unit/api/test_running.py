"""What a run says of ranks that were left out, of windows that a limit ended, and of which window its figures are."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from dsv4prof.api import analyze
from dsv4prof.api.running import _limit_notes, _session_check, _window_checks
from dsv4prof.api.sources import resolve
from dsv4prof.model.session import EndedBy, Outcome, Overhead, RankCoordinates, RankRecord, Session, WindowRecord
from dsv4prof.recorder.sessions import assemble, create_session
from dsv4prof.recorder.sink import write_record
from traces import document, note, write


def _record(rank: int, *windows: WindowRecord, ratio: float | None = None) -> RankRecord:
    overhead = Overhead(2, 2, 20, 10, ratio, "why", matched=2) if ratio else None
    outcome = Outcome.COMPLETE if windows else Outcome.SKIPPED
    return RankRecord(
        coordinates=RankCoordinates(rank=rank, world_size=2), outcome=outcome, windows=list(windows), overhead=overhead
    )


def _window(name: str = "", ended_by: EndedBy | None = None, reason: str | None = None, steps: int = 2) -> WindowRecord:
    return WindowRecord(name=name, steps=steps, trace=f"{name}.json", ended_by=ended_by, reason=reason)


def _session(*ranks: RankRecord) -> Session:
    return Session(
        id="abcd", name="n", created="", command=[], world_size=2, ranks=list(ranks), outcome=Outcome.COMPLETE
    )


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        ([_record(0, _window(), ratio=3.0), _record(1, _window())], "2 ranks, 2 steps, 0.0 MB; profiler overhead 200"),
        ([_record(0), _record(1, _window(), ratio=2.0)], "1 of 2 ranks, 2 steps, 0.0 MB; profiler overhead 100 %"),
    ],
)
def test_the_summary_counts_recorded_ranks(ranks: list[RankRecord], words: str) -> None:
    assert _session_check(Path("x"), _session(*ranks)).message.startswith(f"x: {words}")


def test_limits_name_their_window_once_for_all_ranks() -> None:
    full = _window("decode", EndedBy.SIZE_LIMIT, "the size limit of 1 MiB was reached")
    other = msgspec.structs.replace(full, name="prefill", steps=1)
    assert _limit_notes(_session(_record(0, full, other), _record(1, full))) == [
        "ranks 0, 1, window decode: the size limit of 1 MiB was reached after 2 steps",
        "rank 0, window prefill: the size limit of 1 MiB was reached after 1 step",
    ]


def test_the_window_is_read_before_its_figures(tmp_path: Path) -> None:
    folder = create_session(tmp_path, name="n", world_size=1)
    events = [note("dsv4.step#0 kind=decode requests=1 rows=4", 0, 100)]
    windows = [WindowRecord(name=name, steps=1, trace=f"rank0.{name}.trace.json") for name in ("prefill", "decode")]
    for window in windows:
        write(folder / str(window.trace), document(events, rank=0, world=1))
    here = RankCoordinates(rank=0, world_size=1)
    write_record(folder, RankRecord(coordinates=here, outcome=Outcome.COMPLETE, windows=windows))
    assemble(folder)
    (check,) = _window_checks(resolve([str(folder)], tmp_path))
    assert check.ok is None
    assert check.message.startswith("shown: window prefill; also recorded: decode")
    assert analyze([str(folder)]).checks[0].message == f"{folder}, window prefill: 1 rank in 1 file"
    decode = analyze([str(folder)], window="decode").checks[0].message
    assert decode == f"{folder}, window decode: 1 rank in 1 file"
