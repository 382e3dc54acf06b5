"""On a real GPU: a bounded stop beside a kernel that does not end, and the sources that a CPU can only pretend."""

from __future__ import annotations

import json
import pickle
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from dsv4prof.errors import LifetimeError  # noqa: E402
from dsv4prof.recorder.backends import Backend  # noqa: E402
from dsv4prof.recorder.backends.compose import make_backend  # noqa: E402
from dsv4prof.recorder.backends.device import DeviceWait  # noqa: E402
from dsv4prof.recorder.plan import RecordPlan  # noqa: E402

pytestmark = pytest.mark.gpu
# Cycles; on GPUs of 1 to 2 GHz this is 3 seconds and more.
LONG_SLEEP = 6_000_000_000


@pytest.fixture(autouse=True)
def _gpu() -> Iterator[None]:
    if not torch.cuda.is_available():
        pytest.skip("torch sees no GPU")
    torch.cuda.synchronize()
    yield
    torch.cuda.synchronize()


def work(times: int = 100) -> None:
    square = torch.ones(64, 64, device="cuda")
    for _ in range(times):
        square @ square


def opened(**plan: Any) -> Backend:
    backend = make_backend(RecordPlan(with_stack=False, **plan))
    backend.warm_up()
    backend.prepare()
    backend.start()
    return backend


def categories(backend: Backend, folder: Path) -> Counter[str]:
    path = folder / "t.json"
    backend.export(path)
    return Counter(event.get("cat") for event in json.loads(path.read_bytes())["traceEvents"])


def is_gone(backend: Backend) -> bool:
    return not any(item.alive for item in backend.release())


def test_a_hung_gpu_does_not_hold_the_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DeviceWait, "patience_s", 0.5)
    work()
    backend = opened(activities="cpu+gpu")
    work()
    torch.cuda.synchronize()
    torch.cuda._sleep(LONG_SLEEP)
    began = time.monotonic()
    backend.stop()
    took = time.monotonic() - began
    assert not torch.cuda.current_stream().query(), "the kernel has not ended yet"
    assert 0.4 < took < 1.5
    assert "did not finish within 0.5 s" in backend.notes[0]
    found = categories(backend, tmp_path)
    assert found["kernel"] >= 100, found
    assert found["cpu_op"] >= 200, found
    assert is_gone(backend)
    torch.cuda.synchronize()
    again = opened(activities="cpu+gpu")
    work()
    again.stop()
    assert again.notes == []
    assert categories(again, tmp_path)["kernel"] >= 100, "the next recording is whole"
    assert is_gone(again)


@pytest.mark.parametrize(
    ("activities", "cpu", "gpu"), [("auto", True, True), ("gpu", False, True), ("cpu", True, False)]
)
def test_the_words_say_what_is_recorded(tmp_path: Path, activities: str, cpu: bool, gpu: bool) -> None:
    backend = opened(activities=activities)
    work()
    backend.stop()
    found = categories(backend, tmp_path)
    assert ((found["cpu_op"] > 0), (found["kernel"] > 0)) == (cpu, gpu), found
    assert is_gone(backend)


def test_the_allocators_history_is_saved_and_off_afterwards(tmp_path: Path) -> None:
    backend = opened(activities="mem+cpu")
    kept = torch.empty(3 << 20, dtype=torch.uint8, device="cuda")
    backend.stop()
    assert not torch._C._cuda_isHistoryEnabled()
    files = backend.export_files(tmp_path / "rank0")
    traces = pickle.loads(files["memory"].read_bytes())["device_traces"]
    entries = [entry for device in traces for entry in device if entry["action"] == "alloc"]
    assert any(entry["size"] >= kept.numel() for entry in entries)
    assert is_gone(backend)


def test_ranges_and_the_capture_range_leave_the_process_able_to_record(tmp_path: Path) -> None:
    backend = opened(activities="nvtx+cuda_profiler")
    backend.mark(1)
    work()
    with pytest.raises(LifetimeError, match="another torch profiler"):
        torch.profiler.profile().start()
    backend.mark(None)
    backend.stop()
    assert not backend.writes_trace
    assert is_gone(backend)
    again = opened(activities="auto")
    work()
    again.stop()
    assert categories(again, tmp_path)["kernel"] >= 100
    assert is_gone(again)
