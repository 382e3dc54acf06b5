"""Sources that need a GPU or a vendor's tool, against stand-ins with the signatures of the real ones."""

from __future__ import annotations

import os
import pickle
import sqlite3
import sys
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from dsv4prof.errors import LifetimeError, OutputError  # noqa: E402
from dsv4prof.recorder.backends import roctx  # noqa: E402
from dsv4prof.recorder.backends.device import DeviceWait  # noqa: E402
from dsv4prof.recorder.backends.memory import AllocatorHistory  # noqa: E402
from dsv4prof.recorder.backends.nvtx import CaptureRange, NvtxRanges  # noqa: E402
from dsv4prof.recorder.backends.roctx import RocprofWindow  # noqa: E402
from dsv4prof.recorder.backends.rpd import RpdTracer  # noqa: E402


class Gpu:
    """torch.cuda as far as the sources use it. `calls` is what happened, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, hip: str | None = None) -> None:
        self.calls: list[str] = []
        self.history: dict[str, Any] | None = None
        self.range_answer = 0
        self.finished = True
        monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
        monkeypatch.setattr(torch.cuda, "synchronize", lambda device=None: None)
        monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
        monkeypatch.setattr(DeviceWait, "finished", lambda wait: self.finished)
        monkeypatch.setattr(torch.version, "hip", hip)
        monkeypatch.setattr(torch.cuda.memory, "_record_memory_history", self.record_history)
        monkeypatch.setattr(torch.cuda.memory, "_snapshot", self.snapshot)
        monkeypatch.setattr(torch._C, "_cuda_isHistoryEnabled", lambda: self.history is not None, raising=False)
        cudart = types.SimpleNamespace(
            cudaProfilerStart=lambda: self.called("cudaProfilerStart"),
            cudaProfilerStop=lambda: self.called("cudaProfilerStop"),
        )
        monkeypatch.setattr(torch.cuda, "cudart", lambda: cudart)
        monkeypatch.setattr(torch.cuda, "check_error", self.check)

    def called(self, name: str) -> int:
        self.calls.append(name)
        return self.range_answer

    def check(self, answer: int) -> None:
        if answer:
            raise RuntimeError(f"CUDA error {answer}")

    def record_history(self, enabled: Any = "all", context: Any = "all", stacks: Any = "all", **more: Any) -> None:
        self.history = None if enabled is None else {"context": context, "stacks": stacks, **more}
        self.calls.append("history off" if enabled is None else "history on")

    def snapshot(self) -> dict[str, Any]:
        assert self.history is not None, "torch forgets the history when it is switched off"
        return {"segments": [], "device_traces": [[{"action": "alloc", "size": 512}]]}


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    return Gpu(monkeypatch)


# Allocator snapshots


@pytest.mark.parametrize(("stack", "how"), [(True, ("all", "python")), (False, (None, "all"))])
def test_the_allocators_history_is_the_windows_and_ends_with_it(
    gpu: Gpu, tmp_path: Path, stack: bool, how: tuple[Any, Any]
) -> None:
    source = AllocatorHistory(with_stack=stack)
    source.warm_up()
    source.prepare()
    assert gpu.calls == []
    source.start()
    assert gpu.history is not None
    assert (gpu.history["context"], gpu.history["stacks"]) == how
    assert 0 < gpu.history["max_entries"] <= 1_000_000, "unbounded it would fill the memory"
    source.stop()
    assert gpu.history is None
    files = source.export_files(tmp_path / "rank0.decode")
    assert files == {"memory": tmp_path / "rank0.decode.memory.pickle"}
    assert pickle.loads(files["memory"].read_bytes())["device_traces"][0][0]["size"] == 512
    assert [path.name for path in tmp_path.iterdir()] == ["rank0.decode.memory.pickle"]
    source.release()
    assert source.export_files(tmp_path / "again") == {}


def test_the_history_is_off_whatever_fails(gpu: Gpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any, **__: Any) -> None:
        raise RuntimeError("no snapshot for you")

    source = AllocatorHistory()
    source.prepare()
    source.start()
    monkeypatch.setattr(torch.cuda.memory, "_snapshot", fails)
    source.stop()
    assert gpu.history is None
    assert "no snapshot for you" in source.notes[0]
    assert source.export_files(tmp_path / "x") == {}

    running = AllocatorHistory()
    running.prepare()
    running.start()
    running.release()
    assert gpu.history is None

    def half_way(enabled: Any = "all", **_: Any) -> None:
        gpu.history = None if enabled is None else {}
        if enabled is not None:
            raise RuntimeError("half-way")

    monkeypatch.setattr(torch.cuda.memory, "_record_memory_history", half_way)
    unstarted = AllocatorHistory()
    unstarted.prepare()
    with pytest.raises(RuntimeError, match="half-way"):
        unstarted.start()
    assert gpu.history is None


def test_somebody_elses_history_is_left_alone(gpu: Gpu) -> None:
    gpu.history = {}
    with pytest.raises(LifetimeError, match="already being recorded"):
        AllocatorHistory().prepare()
    assert gpu.calls == []


def test_a_snapshot_that_cannot_be_saved_leaves_nothing(gpu: Gpu, tmp_path: Path) -> None:
    source = AllocatorHistory()
    source.prepare()
    source.start()
    source.stop()
    with pytest.raises(OutputError, match="could not be saved"):
        source.export_files(tmp_path / "gone" / "rank0")
    assert list(tmp_path.iterdir()) == []


def test_a_torch_without_the_private_functions_is_refused(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.cuda.memory, "_snapshot")
    with pytest.raises(LifetimeError, match="_snapshot") as caught:
        AllocatorHistory().prepare()
    assert "mem" in (caught.value.hint or "")


@pytest.mark.parametrize("make", [AllocatorHistory, NvtxRanges, CaptureRange])
def test_without_a_gpu_one_sentence_says_so(monkeypatch: pytest.MonkeyPatch, make: Any) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    for move in ("warm_up", "prepare"):
        with pytest.raises(LifetimeError, match="need a CUDA or HIP device") as caught:
            getattr(make(), move)()
        assert "auto" in (caught.value.hint or "")


# NVTX ranges and the capture range


@pytest.fixture
def emitter(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """torch's emit_nvtx where there is no CUDA: torch's own guard and flags, without the ranges."""
    calls: list[str] = []

    class Emitter:
        def __init__(self, enabled: bool = True, record_shapes: bool = False) -> None:
            calls.append(f"shapes {record_shapes}")

        def __enter__(self) -> None:
            calls.append("enter")
            torch.autograd.profiler._run_on_profiler_start()

        def __exit__(self, *_: object) -> None:
            calls.append("exit")
            torch.autograd.profiler._run_on_profiler_stop()

    monkeypatch.setattr(torch.autograd.profiler, "emit_nvtx", Emitter)
    monkeypatch.setattr(torch.autograd, "_disable_profiler", lambda: calls.append("disabled"))
    yield calls
    assert not torch.autograd.profiler._is_profiler_enabled


def test_ranges_are_emitted_in_the_window_and_keep_other_profilers_out(gpu: Gpu, emitter: list[str]) -> None:
    source = NvtxRanges(record_shapes=True)
    source.warm_up()
    source.prepare()
    source.start()
    source.mark(3)
    with pytest.raises(LifetimeError, match="another torch profiler"):
        torch.profiler.profile().start()
    source.mark(None)
    source.stop()
    assert emitter == ["shapes True", "enter", "exit"]
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        torch.ones(2)
    assert not any(item.alive for item in source.release())
    assert source.release() == []


def test_ranges_end_beside_a_hung_gpu_without_torchs_wait(gpu: Gpu, emitter: list[str]) -> None:
    source = NvtxRanges()
    source.prepare()
    source.start()
    gpu.finished = False
    source.stop()
    assert emitter == ["shapes False", "enter", "disabled"]
    assert "did not finish" in source.notes[0]


def test_ranges_do_not_begin_beside_a_hung_gpu(gpu: Gpu, emitter: list[str]) -> None:
    gpu.finished = False
    source = NvtxRanges()
    source.prepare()
    with pytest.raises(LifetimeError, match="did not finish"):
        source.start()
    source.release()
    assert emitter == ["shapes False"]
    torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]).prepare_trace()


def test_the_capture_range_is_the_window(gpu: Gpu) -> None:
    source = CaptureRange()
    source.warm_up()
    source.prepare()
    assert gpu.calls == []
    source.start()
    source.stop()
    source.stop()
    source.release()
    assert gpu.calls == ["cudaProfilerStart", "cudaProfilerStop"]
    gpu.range_answer = 999
    with pytest.raises(LifetimeError, match=r"cudaProfilerStart.*999"):
        source.start()


# rocprofv3


class Library:
    """librocprofiler-sdk-roctx as far as the sources use it."""

    def __init__(self, answer: int = 0) -> None:
        self.calls: list[tuple[str, int]] = []
        for name in ("roctxProfilerResume", "roctxProfilerPause"):
            setattr(self, name, self.function(name, answer))

    def function(self, name: str, answer: int) -> Any:
        def call(thread: int) -> int:
            self.calls.append((name, thread))
            return answer

        return call


@pytest.fixture
def library(monkeypatch: pytest.MonkeyPatch) -> Library:
    library = Library()
    monkeypatch.setattr(roctx.ctypes, "CDLL", lambda name: library)
    monkeypatch.setenv("ROCPROF_SELECTED_REGIONS", "1")
    return library


WINDOW = [("roctxProfilerResume", 0), ("roctxProfilerPause", 0)]


def test_rocprofv3_collects_in_the_window(library: Library) -> None:
    source = RocprofWindow()
    source.warm_up()
    source.prepare()
    assert library.calls == []
    source.start()
    source.stop()
    source.release()
    assert library.calls == WINDOW


def test_on_hip_the_capture_range_is_rocprofs(monkeypatch: pytest.MonkeyPatch, library: Library) -> None:
    gpu = Gpu(monkeypatch, hip="7.2.1")
    source = CaptureRange()
    source.prepare()
    source.start()
    source.stop()
    assert library.calls == WINDOW
    assert gpu.calls == []


@pytest.mark.parametrize("value", [None, "", "0", "False"])
def test_outside_rocprofv3_the_command_is_named(
    monkeypatch: pytest.MonkeyPatch, library: Library, value: str | None
) -> None:
    monkeypatch.delenv("ROCPROF_SELECTED_REGIONS")
    if value is not None:
        monkeypatch.setenv("ROCPROF_SELECTED_REGIONS", value)
    with pytest.raises(LifetimeError, match="does not run under rocprofv3") as caught:
        RocprofWindow().warm_up()
    assert "rocprofv3 --selected-regions" in (caught.value.hint or "")


def test_a_missing_or_old_library_and_a_refusal_are_sentences(
    monkeypatch: pytest.MonkeyPatch, library: Library
) -> None:
    library.__dict__.pop("roctxProfilerPause")
    with pytest.raises(LifetimeError, match="has no roctxProfilerPause"):
        RocprofWindow().warm_up()
    monkeypatch.setattr(roctx.ctypes, "CDLL", lambda name: Library(answer=-1))
    source = RocprofWindow()
    source.prepare()
    with pytest.raises(LifetimeError, match="refused roctxProfilerResume"):
        source.start()

    tried: list[str] = []

    def absent(name: str) -> None:
        tried.append(name)
        raise OSError(name)

    monkeypatch.setattr(roctx.ctypes, "CDLL", absent)
    monkeypatch.setenv("ROCM_PATH", "/elsewhere")
    with pytest.raises(LifetimeError, match="was not found"):
        RocprofWindow().warm_up()
    assert "/elsewhere/lib/librocprofiler-sdk-roctx.so" in tried


# RPD


class Rpd:
    """rpdTracerControl of rocmProfileData: one file a process, whose name can be said once, as the real one insists."""

    filename: str | None = None
    loaded = False
    calls: list[str]

    @classmethod
    def setFilename(cls, name: str, append: bool = False) -> None:
        if cls.loaded:
            raise RuntimeError("Trace file name can not be changed once logging")
        cls.filename = name

    def __init__(self) -> None:
        type(self).loaded = True
        with sqlite3.connect(str(self.filename)) as connection:
            connection.execute("create table if not exists rocpd_op (name text)")

    def start(self) -> None:
        self.calls.append("start")

    def stop(self) -> None:
        self.calls.append("stop")
        with sqlite3.connect(str(self.filename)) as connection:
            connection.execute("insert into rocpd_op values ('kernel')")

    def flush(self) -> None:
        self.calls.append("flush")


@pytest.fixture
def rpd(monkeypatch: pytest.MonkeyPatch) -> type[Rpd]:
    fake = type("rpdTracerControl", (Rpd,), {"calls": []})
    monkeypatch.setitem(sys.modules, "rpdTracerControl", types.SimpleNamespace(rpdTracerControl=fake))
    monkeypatch.setattr(RpdTracer, "_file", None)
    monkeypatch.delenv("RPDT_FILENAME", raising=False)
    return fake


def window_of_rpd(base: Path) -> Path:
    source = RpdTracer()
    source.warm_up()
    source.prepare()
    source.start()
    source.stop()
    source.stop()
    path = source.export_files(base)["rpd"]
    source.release()
    return path


def rows_of(path: Path) -> int:
    with sqlite3.connect(path) as connection:
        return int(connection.execute("select count(*) from rocpd_op").fetchone()[0])


def test_each_window_has_rpds_file_as_it_was_then(rpd: type[Rpd], tmp_path: Path) -> None:
    first = window_of_rpd(tmp_path / "rank0.1")
    second = window_of_rpd(tmp_path / "rank0.2")
    assert (first.name, second.name) == ("rank0.1.rpd", "rank0.2.rpd")
    assert (rows_of(first), rows_of(second)) == (1, 2), "RPD appends to its one file"
    assert rpd.calls == ["start", "stop", "flush"] * 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rank0.1.rpd", "rank0.2.rpd"]


def test_a_file_that_the_user_named_is_rpds(rpd: type[Rpd], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    named = tmp_path / "mine.rpd"
    monkeypatch.setenv("RPDT_FILENAME", str(named))
    rpd.filename = str(named)
    assert rows_of(window_of_rpd(tmp_path / "rank0")) == 1
    assert named.is_file()


def test_an_rpd_without_flush_or_without_a_file_is_no_crash(rpd: type[Rpd], tmp_path: Path) -> None:
    source = RpdTracer()
    source.prepare()
    source.start()
    del Rpd.flush
    try:
        source.stop()
    finally:
        Rpd.flush = lambda self: self.calls.append("flush")
    os.unlink(str(rpd.filename))
    with pytest.raises(OutputError, match="RPD's file could not be saved"):
        source.export_files(tmp_path / "rank0")
    assert list(tmp_path.iterdir()) == []


def test_without_rpd_the_place_to_get_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rpdTracerControl", None)
    with pytest.raises(LifetimeError, match="RPD's tracer is not installed") as caught:
        RpdTracer().warm_up()
    assert "rocmProfileData" in (caught.value.hint or "")
    assert "not from PyPI" in (caught.value.hint or "")


def test_an_rpd_that_does_not_load_is_a_sentence(rpd: type[Rpd], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: object) -> None:
        raise OSError("librpd_tracer.so: cannot open shared object file")

    monkeypatch.setattr(rpd, "__init__", broken)
    with pytest.raises(LifetimeError, match=r"could not be loaded: librpd_tracer\.so"):
        RpdTracer().warm_up()
