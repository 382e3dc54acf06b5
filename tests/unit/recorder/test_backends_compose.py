"""Several sources as one: all or none of them records, and each is left in turn whatever the others do."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from dsv4prof.errors import LifetimeError, OutputError
from dsv4prof.recorder.backends import Remains
from dsv4prof.recorder.backends.compose import JoinedBackend, make_backend
from dsv4prof.recorder.backends.kineto import KinetoBackend
from dsv4prof.recorder.backends.silent import SilentSource
from dsv4prof.recorder.plan import RecordPlan


class Thing:
    """What a source leaves behind."""


class Source(SilentSource):
    """Notes its moves in a common list, and fails at those that it is told to."""

    def __init__(self, name: str, log: list[str], *, fails: str = "", writes_trace: bool = False) -> None:
        super().__init__()
        self.name, self.log, self.fails = name, log, fails
        self.writes_trace = writes_trace
        self.thing: Thing | None = Thing()
        self.notes = ["common", name]

    def move(self, word: str) -> None:
        self.log.append(f"{self.name}.{word}")
        if word == self.fails:
            raise LifetimeError(f"{self.name} cannot {word}")

    def warm_up(self) -> None:
        self.move("warm_up")

    def prepare(self) -> None:
        self.move("prepare")

    def start(self) -> None:
        self.move("start")

    def mark(self, step: int | None) -> None:
        self.move(f"mark {step}")

    def stop(self) -> None:
        self.move("stop")

    def abandon(self) -> None:
        self.move("abandon")

    def export(self, path: Path) -> None:
        self.move("export")

    def export_files(self, base: Path) -> dict[str, Path]:
        if self.fails == "files":
            raise OutputError(f"{self.name} cannot save")
        self.move("files")
        return {self.name: base.with_name(self.name)}

    def release(self, *, keep: bool = False) -> list[Remains]:
        self.move("keep" if keep else "release")
        thing, self.thing = self.thing, None
        return [] if thing is None else [Remains(self.name, weakref.ref(thing))]


def joined(log: list[str], *, keep: bool = False, **fails: str) -> JoinedBackend:
    return JoinedBackend([Source(name, log, fails=fails.get(name, "")) for name in "abc"], keep=keep)


def moves(log: list[str], word: str) -> str:
    return "".join(entry.split(".")[0] for entry in log if entry.endswith(f".{word}"))


def test_what_began_first_ends_last() -> None:
    log: list[str] = []
    backend = joined(log)
    backend.warm_up()
    backend.prepare()
    backend.start()
    backend.mark(4)
    backend.stop()
    remains = backend.release()
    assert [moves(log, word) for word in ("warm_up", "prepare", "start", "mark 4")] == ["abc"] * 4
    assert [moves(log, word) for word in ("stop", "release")] == ["cba"] * 2
    assert sorted(item.label for item in remains) == ["a", "b", "c"]
    assert not any(item.alive for item in remains)
    assert backend.release() == []
    assert backend.notes == ["common", "a", "b", "c"]


@pytest.mark.parametrize(("failing", "stopped"), [("a", ""), ("b", "a"), ("c", "ba")])
@pytest.mark.parametrize("keep", [False, True])
def test_a_source_that_does_not_start_ends_those_that_did(failing: str, stopped: str, keep: bool) -> None:
    log: list[str] = []
    backend = joined(log, keep=keep, **{failing: "start"})
    backend.prepare()
    with pytest.raises(LifetimeError, match=f"{failing} cannot start"):
        backend.start()
    assert moves(log, "stop") == stopped
    assert moves(log, "keep" if keep else "release") == "cba"
    assert sorted(item.label for item in backend.release()) == ["a", "b", "c"], "the proof still sees what there was"


def test_a_source_that_cannot_be_prepared_releases_the_others() -> None:
    log: list[str] = []
    backend = joined(log, b="prepare")
    with pytest.raises(LifetimeError, match="b cannot prepare"):
        backend.prepare()
    assert moves(log, "prepare") == "ab"
    assert moves(log, "release") == "cba"
    assert moves(log, "stop") == ""


@pytest.mark.parametrize("failing", ["a", "b", "c"])
def test_a_source_that_does_not_stop_keeps_none_from_it(failing: str) -> None:
    log: list[str] = []
    backend = joined(log, **{failing: "stop"})
    with pytest.raises(LifetimeError, match=f"{failing} cannot stop"):
        backend.stop()
    assert moves(log, "stop") == "cba"


def test_one_file_that_cannot_be_saved_does_not_cost_the_others() -> None:
    log: list[str] = []
    backend = joined(log, a="files")
    with pytest.raises(OutputError, match="a cannot save"):
        backend.export_files(Path("rank0"))
    assert moves(log, "files") == "bc"
    assert joined([]).export_files(Path("rank0")) == {name: Path(name) for name in "abc"}


def test_the_trace_is_its_writers() -> None:
    log: list[str] = []
    sources = [Source("a", log), Source("b", log, writes_trace=True)]
    backend = JoinedBackend(sources)
    assert backend.writes_trace
    backend.export(Path("x"))
    assert moves(log, "export") == "b"
    none = joined(log)
    assert not none.writes_trace
    with pytest.raises(OutputError, match="nothing was recorded"):
        none.export(Path("x"))


def test_a_fork_is_every_sources_business() -> None:
    log: list[str] = []
    joined(log).abandon()
    assert moves(log, "abandon") == "abc"


@pytest.mark.parametrize(
    ("activities", "expected", "writes_trace"),
    [
        ("auto", "KinetoBackend", True),
        ("cpu", "KinetoBackend", True),
        ("cpu+gpu+mem", "AllocatorHistory KinetoBackend", True),
        ("nvtx+cuda_profiler", "CaptureRange NvtxRanges", False),
        ("cpu+rpd+rocprof", "RpdTracer RocprofWindow KinetoBackend", True),
        ("mem", "AllocatorHistory", False),
        ("rocprof", "RocprofWindow", False),
    ],
)
def test_a_plans_words_become_sources_with_the_innermost_last(
    activities: str, expected: str, writes_trace: bool
) -> None:
    backend: Any = make_backend(RecordPlan(activities=activities))
    sources = backend._sources if isinstance(backend, JoinedBackend) else [backend]
    assert " ".join(type(source).__name__ for source in sources) == expected
    assert backend.writes_trace == writes_trace
    waits = {id(source._wait) for source in sources if hasattr(source, "_wait")}
    assert len(waits) <= 1, "a hung GPU costs one patience, not one a source"


def test_a_real_profiler_goes_when_its_neighbour_fails(tmp_path: Path) -> None:
    log: list[str] = []
    kineto = KinetoBackend(RecordPlan(with_stack=False))
    backend = JoinedBackend([kineto, Source("late", log, fails="start")])
    backend.warm_up()
    backend.prepare()
    with pytest.raises(LifetimeError, match="late cannot start"):
        backend.start()
    remains = backend.release()
    assert {"torch.profiler.profile", "kineto results"} <= {item.label for item in remains}
    assert not any(item.alive for item in remains)
    again = KinetoBackend(RecordPlan(with_stack=False))
    again.prepare()
    again.release()
    gc.collect()
