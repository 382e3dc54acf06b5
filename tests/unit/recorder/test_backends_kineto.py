"""The torch.profiler source by itself: what it asks of torch, its bounded stop, and its life on other threads."""

from __future__ import annotations

import ctypes
import gc
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from dsv4prof.errors import LifetimeError, OutputError  # noqa: E402
from dsv4prof.recorder.backends import device, prepared  # noqa: E402
from dsv4prof.recorder.backends.device import DeviceWait  # noqa: E402
from dsv4prof.recorder.backends.kineto import KinetoBackend  # noqa: E402
from dsv4prof.recorder.backends.metadata import pasteable  # noqa: E402
from dsv4prof.recorder.plan import RecordPlan  # noqa: E402

PLAN = RecordPlan(with_stack=False)
HAS_PYTHON_EXPORTER = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 13)


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    torch.set_num_threads(1)
    yield
    gc.collect()
    assert not torch.autograd._profiler_enabled()


def work() -> None:
    (torch.ones(8, 8) @ torch.ones(8, 8)).sum().item()


def recorded(plan: RecordPlan = PLAN, metadata: dict[str, Any] | None = None, body: Any = work) -> KinetoBackend:
    backend = KinetoBackend(plan, metadata=metadata)
    backend.warm_up()
    backend.prepare()
    backend.start()
    try:
        body()
    finally:
        backend.stop()
    return backend


def saved(backend: KinetoBackend, folder: Path) -> dict[str, Any]:
    path = folder / "t.json"
    backend.export(path)
    assert [other.name for other in folder.iterdir()] == ["t.json"]
    return json.loads(path.read_bytes())


def operators(trace: dict[str, Any]) -> list[dict[str, Any]]:
    return [event for event in trace["traceEvents"] if event.get("cat") == "cpu_op"]


def test_flops_are_noted_and_bring_shapes(tmp_path: Path) -> None:
    backend = recorded(RecordPlan(with_stack=False, with_flops=True))
    trace = saved(backend, tmp_path)
    (product,) = [event for event in operators(trace) if event["name"] == "aten::mm"]
    assert product["args"]["Input Dims"][:2] == [[8, 8], [8, 8]]
    assert trace["with_flops"] == trace["record_shapes"] == 1
    backend.release()


def test_modules_are_asked_for(tmp_path: Path) -> None:
    backend = recorded(RecordPlan(with_modules=True))
    assert saved(backend, tmp_path)["with_modules"] == 1
    backend.release()


@pytest.mark.parametrize("activities", ["gpu", "cpu+gpu"])
def test_a_gpu_is_not_promised_where_none_can_be_traced(monkeypatch: pytest.MonkeyPatch, activities: str) -> None:
    monkeypatch.setattr(torch.profiler, "supported_activities", lambda: {torch.profiler.ProfilerActivity.CPU})
    with pytest.raises(LifetimeError, match="no accelerator") as caught:
        KinetoBackend(RecordPlan(activities=activities)).prepare()
    assert "auto" in (caught.value.hint or "")


@pytest.mark.parametrize(
    ("activities", "expected"), [("auto", "CPU CUDA"), ("cpu", "CPU"), ("gpu", "CUDA"), ("cpu+gpu", "CPU CUDA")]
)
def test_the_plans_words_become_torchs(monkeypatch: pytest.MonkeyPatch, activities: str, expected: str) -> None:
    kinds = torch.profiler.ProfilerActivity
    monkeypatch.setattr(torch.profiler, "supported_activities", lambda: {kinds.CPU, kinds.CUDA})
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    asked = KinetoBackend(RecordPlan(activities=activities))._activities()
    assert " ".join(str(each).rsplit(".", 1)[-1] for each in asked) == expected


def test_it_is_exported_and_released_on_another_thread_while_the_next_one_records(tmp_path: Path) -> None:
    first = recorded()
    second = KinetoBackend(PLAN)
    second.prepare()
    second.start()
    failures: list[BaseException] = []
    remains: list[Any] = []

    def finish() -> None:
        try:
            assert len(operators(saved(first, tmp_path))) > 3
            remains.extend(first.release())
        except Exception as error:  # noqa: BLE001 - told to the test, which is another thread
            failures.append(error)

    thread = threading.Thread(target=finish)
    thread.start()
    work()
    while thread.is_alive():
        work()
    second.stop()
    assert failures == []
    assert remains
    assert not any(item.alive for item in remains), "dead without any collection"
    (tmp_path / "t.json").unlink()
    assert len(operators(saved(second, tmp_path))) > 3
    second.release()


def test_foreign_profilers_are_refused_until_ours_has_stopped_and_no_longer() -> None:
    def foreign() -> None:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
            work()

    backend = KinetoBackend(PLAN)
    backend.warm_up()
    backend.prepare()
    with pytest.raises(LifetimeError, match="another torch profiler"):
        foreign()
    backend.start()
    with pytest.raises(LifetimeError, match="another torch profiler"):
        foreign()
    work()
    backend.stop()
    foreign()
    backend.release()
    foreign()


def test_a_look_at_living_profilers_does_not_outlive_a_release() -> None:
    """Such a look holds every profiler for a moment: one that was dropped in it died later, in the other thread."""
    backend = recorded()
    dead: list[bool] = []
    with prepared.living_profilers_lock():
        seen = [each for each in gc.get_objects() if issubclass(type(each), torch.autograd.profiler.profile)]
        thread = threading.Thread(target=lambda: dead.append(not any(item.alive for item in backend.release())))
        thread.start()
        thread.join(0.3)
        assert seen
        assert thread.is_alive(), "it waits"
        seen.clear()
    thread.join(30)
    assert dead == [True]


class HungGpu:
    """A torch.cuda whose synchronize returns when it is told to, and says for which device it was asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, hangs: bool) -> None:
        self.asked: list[tuple[int, ...]] = []
        self.wakes = threading.Event()
        if not hangs:
            self.wakes.set()
        monkeypatch.setattr(torch.cuda, "synchronize", self.synchronize)
        monkeypatch.setattr(torch.cuda, "current_device", lambda: 3)
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
        monkeypatch.setattr(DeviceWait, "patience_s", 0.2)

    def synchronize(self, *device: int) -> None:
        self.asked.append(device)
        self.wakes.wait(60)


def gpu_recording(gpu: HungGpu) -> KinetoBackend:
    """A CPU recording that takes itself for one of a GPU; without our care torch's own stop would call the fake."""
    backend = KinetoBackend(PLAN)
    backend.warm_up()
    backend.prepare()
    backend._device = backend._profiler.profiler.use_device = "cuda"
    backend.start()
    work()
    return backend


def test_the_stop_of_a_hung_gpu_is_bounded_and_the_cpu_part_is_saved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = HungGpu(monkeypatch, hangs=True)
    backend = gpu_recording(gpu)
    began = time.monotonic()
    backend.stop()
    assert time.monotonic() - began < 5
    assert gpu.asked == [(3,)], "the recorded thread's device, once"
    assert backend.notes == [
        "the GPU did not finish within 0.2 s: the CPU part and the kernels that finished are saved"
    ]
    assert len(operators(saved(backend, tmp_path))) > 3
    (helper,) = [thread for thread in threading.enumerate() if thread.name == "dsv4prof-device-wait"]
    assert helper.daemon, "a process must be able to end while its GPU hangs"
    gpu.wakes.set()
    helper.join(10)
    backend.release()


def test_a_gpu_that_finishes_is_waited_for_once_and_not_spoken_of(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = HungGpu(monkeypatch, hangs=False)
    backend = gpu_recording(gpu)
    backend.stop()
    assert (gpu.asked, backend.notes) == ([(3,)], [])
    backend.release()


def test_nobody_waits_for_a_gpu_that_is_not_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = HungGpu(monkeypatch, hangs=True)
    backend = recorded()
    assert gpu.asked == []
    backend.release()


def test_a_gpu_that_was_never_touched_is_not_set_up_for_a_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = HungGpu(monkeypatch, hangs=True)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    backend = gpu_recording(gpu)
    backend.stop()
    assert (gpu.asked, backend.notes) == ([], [])
    backend.release()


def test_a_torch_without_the_switch_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = HungGpu(monkeypatch, hangs=True)
    monkeypatch.setattr(device, "_SYNC_SWITCHES", ("renamed",))
    backend = gpu_recording(gpu)
    threading.Timer(1.0, gpu.wakes.set).start()
    backend.stop()
    assert len(backend.notes) == 2
    assert "could not be left out" in backend.notes[1]
    backend.release()


AWKWARD = [
    'a"b', "back\\slash", "tail\\", "new\nline", "bell\x07", "\x1f\x7f", "é", "\u2028", "}\n  },\n  {\n", '\\"}]}',
]  # fmt: skip


@pytest.mark.parametrize("text", [*AWKWARD, "nul\x00", "lone \ud800", "bytes \udcff"], ids=ascii)
def test_metadata_of_any_text_is_pasted_whole(tmp_path: Path, text: str) -> None:
    """By Kineto itself: its own file is good, and nothing has to be mended."""
    plain = {"number": 1.5, "none": None, "nan": float("nan"), "path": Path("x")}
    metadata = {"key" + text: [text, {"inner": text}], **plain}
    backend = recorded(metadata=metadata)
    path = tmp_path / "t.json"
    assert backend._fault_of_kinetos(path) is None
    found = json.loads(path.read_bytes())["dsv4prof_rank"]
    assert found == json.loads(pasteable(metadata))
    assert (found["number"], found["none"], found["nan"], found["path"]) == (1.5, None, "nan", "x")
    assert "\\" not in pasteable(metadata)
    backend.release()


@pytest.mark.parametrize("name", AWKWARD, ids=ascii)
def test_annotations_of_any_name_leave_a_whole_file(tmp_path: Path, name: str) -> None:
    def body() -> None:
        with torch.profiler.record_function(name):
            work()

    backend = recorded(RecordPlan(), body=body)
    annotations = [event for event in saved(backend, tmp_path)["traceEvents"] if event.get("cat") == "user_annotation"]
    assert len(annotations) == 1
    assert len(annotations[0]["name"]) >= len(name) - 5
    backend.release()


def test_a_lone_surrogate_in_a_name_is_torchs_error_and_costs_nothing_else(tmp_path: Path) -> None:
    def body() -> None:
        with pytest.raises(RuntimeError), torch.profiler.record_function("\ud800"):
            pass
        work()

    backend = recorded(body=body)
    assert len(operators(saved(backend, tmp_path))) > 3
    backend.release()


def test_a_threads_name_that_is_no_text_leaves_a_whole_file(tmp_path: Path) -> None:
    libc = ctypes.CDLL(None)
    before = ctypes.create_string_buffer(16)
    libc.prctl(16, before, 0, 0, 0)

    def body() -> None:
        libc.prctl(15, b'caf\xc3 "\n', 0, 0, 0)
        work()

    try:
        backend = recorded(body=body)
        assert len(operators(saved(backend, tmp_path))) > 3
    finally:
        libc.prctl(15, before, 0, 0, 0)
    backend.release()


@pytest.mark.skipif(not HAS_PYTHON_EXPORTER, reason="torch's second exporter came with 2.13")
def test_a_file_that_cannot_be_mended_is_written_by_torchs_second_exporter(tmp_path: Path) -> None:
    def body() -> None:
        torch.autograd._add_metadata_json("foreign", 'no json {"')
        work()

    backend = recorded(body=body, metadata={"rank": 7})
    trace = saved(backend, tmp_path)
    assert trace["dsv4prof_rank"] == {"rank": 7}
    assert len(operators(trace)) > 3
    backend.release()


def test_what_cannot_be_written_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    backend = recorded()
    with pytest.raises(OutputError, match="torch wrote no trace: is the folder gone or the disk full"):
        backend.export(tmp_path / "gone" / "t.json")
    assert list(tmp_path.iterdir()) == []
    backend.release()
    with pytest.raises(OutputError, match="nothing was recorded"):
        backend.export(tmp_path / "t.json")


def test_release_may_follow_anything_and_itself() -> None:
    assert KinetoBackend(PLAN).release() == []
    prepared = KinetoBackend(PLAN)
    prepared.prepare()
    assert not any(item.alive for item in prepared.release())
    running = KinetoBackend(PLAN)
    running.prepare()
    running.start()
    assert not any(item.alive for item in running.release())
    assert running.release() == []
    again = recorded()
    again.release()


def test_a_longer_list_of_activities_is_warmed_up_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kineto's start for a GPU costs as much after a recording of the CPU alone."""
    recorded().release()
    started: list[Any] = []
    make = torch.profiler.profile
    monkeypatch.setattr(torch.profiler, "profile", lambda **options: started.append(options) or make(**options))
    KinetoBackend(PLAN).warm_up()
    assert started == []
    owner, known = KinetoBackend._warm
    monkeypatch.setattr(KinetoBackend, "_warm", (owner, known - {"ProfilerActivity.CPU"}))
    KinetoBackend(PLAN).warm_up()
    assert len(started) == 1
