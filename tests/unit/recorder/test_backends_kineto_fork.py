"""Kineto's export in a copy of the process: the same file, the same fallbacks, and a program that notices nothing."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from dsv4prof.errors import OutputError  # noqa: E402
from dsv4prof.recorder.backends import forked_export  # noqa: E402
from dsv4prof.recorder.backends.kineto import KinetoBackend  # noqa: E402
from dsv4prof.recorder.plan import RecordPlan  # noqa: E402
from recorded_child import assert_whole, only_session, record_of, run_child  # noqa: E402

PLAN = RecordPlan(with_stack=False)
HAS_PYTHON_EXPORTER = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 13)

if not forked_export.is_safe(torch):
    pytest.skip("this process cannot be copied safely", allow_module_level=True)


@pytest.fixture(autouse=True)
def _always_a_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.set_num_threads(1)
    monkeypatch.setattr(forked_export, "is_worth_it", lambda export_s: True)


def work() -> None:
    (torch.ones(8, 8) @ torch.ones(8, 8)).sum().item()


def recorded(plan: RecordPlan = PLAN, body: Callable[[], Any] = work) -> KinetoBackend:
    backend = KinetoBackend(plan, metadata={"rank": 7})
    backend.warm_up()
    backend.prepare()
    backend.start()
    body()
    backend.stop()
    return backend


def saved(backend: KinetoBackend, folder: Path) -> list[str]:
    """The names of all operators of the exported file."""
    path = folder / "t.json"
    backend.export(path)
    assert [other.name for other in folder.iterdir()] == ["t.json"]
    trace = json.loads(path.read_bytes())
    assert trace["dsv4prof_rank"] == {"rank": 7}
    return [event["name"] for event in trace["traceEvents"] if event.get("cat") == "cpu_op"]


def freed(backend: KinetoBackend) -> bool:
    remains = backend.release()
    return len(remains) == 3 and not any(item.alive for item in remains)


@pytest.mark.parametrize("stacks", [False, True])
def test_the_copy_saves_and_this_process_does_not(tmp_path: Path, stacks: bool) -> None:
    backend = recorded(RecordPlan(with_stack=stacks))
    names = saved(backend, tmp_path)
    assert "aten::mm" in names
    assert backend.notes == []
    # Kineto saves what it recorded once in a process; that it still can tells who did it.
    backend._profiler.export_chrome_trace(str(tmp_path / "here.json"))
    with pytest.raises(RuntimeError, match="already saved"):
        backend._profiler.export_chrome_trace(str(tmp_path / "again.json"))
    assert freed(backend)


def test_a_recording_that_is_saved_fast_is_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("a fork"))
    backend = recorded()
    assert "aten::mm" in saved(backend, tmp_path)
    assert freed(backend)


def test_how_long_saving_takes_is_told_by_the_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    few, many = recorded(), recorded(body=lambda: [work() for _ in range(5_000)])
    assert many._stop_s > 5 * few._stop_s > 0
    assert freed(few)
    assert freed(many)


@pytest.mark.parametrize(
    ("instead", "words"),
    [
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "it was ended by signal 9"),
        (lambda: time.sleep(60), "it did not end within 1 s"),
        (lambda: 1 / 0, "it failed"),
    ],
    ids=["killed", "hung", "failed"],
)
def test_where_the_copy_fails_the_thread_saves_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, instead: Callable[[], Any], words: str
) -> None:
    monkeypatch.setattr(forked_export, "_PATIENCE_S", 1.0)
    save_and_leave = forked_export._save_and_leave

    def fails(save: Any, libc: Any, parent: int) -> None:
        # As if it had been in the middle of the file.
        (tmp_path / "t.json.tmp").write_text("{")
        save_and_leave(instead, libc, parent)

    monkeypatch.setattr(forked_export, "_save_and_leave", fails)
    backend = recorded()
    assert "aten::mm" in saved(backend, tmp_path)
    assert backend.notes == [f"saving the trace held the program up: a copy of it was to do that, but {words}"]
    assert freed(backend)


def test_it_is_saved_while_the_next_one_records(tmp_path: Path) -> None:
    first, second = recorded(), KinetoBackend(PLAN, metadata={"rank": 7})
    second.prepare()
    second.start()
    names: list[str] = []
    thread = threading.Thread(target=lambda: names.extend(saved(first, tmp_path)))
    thread.start()
    while thread.is_alive():
        work()
    second.stop()
    assert names.count("aten::mm") == 1
    assert freed(first)
    (tmp_path / "t.json").unlink()
    assert saved(second, tmp_path).count("aten::mm") > 1
    assert freed(second)


def test_names_are_mended_in_the_copys_file(tmp_path: Path) -> None:
    def body() -> None:
        with torch.profiler.record_function('a"b'):
            work()

    backend = recorded(body=body)
    assert "aten::mm" in saved(backend, tmp_path)
    assert freed(backend)


@pytest.mark.skipif(not HAS_PYTHON_EXPORTER, reason="torch's second exporter came with 2.13")
def test_what_cannot_be_mended_is_written_by_the_second_exporter_here(tmp_path: Path) -> None:
    def body() -> None:
        torch.autograd._add_metadata_json("foreign", 'no json {"')
        work()

    backend = recorded(body=body)
    assert "aten::mm" in saved(backend, tmp_path)
    assert freed(backend)


def test_a_folder_that_is_gone_is_one_clear_sentence(tmp_path: Path) -> None:
    backend = recorded()
    with pytest.raises(OutputError, match="torch wrote no trace: is the folder gone or the disk full"):
        backend.export(tmp_path / "gone" / "t.json")
    assert list(tmp_path.iterdir()) == []
    assert "aten::mm" in saved(backend, tmp_path), "nothing is lost by it"
    assert freed(backend)


FORCED = """
import atexit, logging, warnings
warnings.simplefilter("error")
import dsv4prof.recorder.backends.forked_export as forked
forked.is_worth_it = lambda export_s: True
forks = []
os.register_at_fork(before=lambda: forks.append("x"))
atexit.register(lambda: print("end", len(forks)))
print("once", end=" ")
"""


def test_a_program_that_records_is_whole_and_notices_nothing(tmp_path: Path) -> None:
    """Its buffered output comes once, its exit hooks run once, and our own hook in the copy drops no profiler."""
    body = f"""{FORCED}
for _ in range(2):
    with record(RecordPlan(active=2, windows=2, with_stack=False), root=root / str(len(forks))) as r:
        for _ in range(6): work(); r.step()
"""
    code, out, err = run_child(tmp_path, body)
    assert code == 0, err
    assert out == "once end 4\n"
    for name in ("0", "2"):
        folder = only_session(tmp_path / name)
        windows = record_of(folder)["windows"]
        assert record_of(folder)["outcome"] == "complete"
        assert [window["release"]["freed"] for window in windows] == [True, True]
        assert [window.get("notes", []) for window in windows] == [[], []]
        assert not list(folder.glob(".*"))


def test_a_program_that_ends_at_once_is_saved(tmp_path: Path) -> None:
    body = f"""{FORCED}
r = recorder(); r.arm(); work()
sys.exit(3)
"""
    code, out, err = run_child(tmp_path, body)
    assert (code, out) == (3, "once end 1\n"), err
    assert_whole(only_session(tmp_path))


def test_the_copy_of_a_program_that_was_killed_does_not_live_on(tmp_path: Path) -> None:
    body = f"""{FORCED}
pid = root.with_name("copy")
libc_save = forked._save_and_leave
def slow(save, libc, parent):
    def wait():
        pid.write_text(str(os.getpid())); time.sleep(60)
    libc_save(wait, libc, parent)
forked._save_and_leave = slow
r = recorder(); r.arm(); work()
threading.Timer(1.0, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
r.stop()
"""
    code, _, err = run_child(tmp_path / "sessions", body)
    assert code == -signal.SIGKILL, err
    copy = int((tmp_path / "copy").read_text())
    deadline = time.monotonic() + 10
    while Path(f"/proc/{copy}/fd").exists() and any_state(copy) != "Z" and time.monotonic() < deadline:
        time.sleep(0.05)
    assert any_state(copy) in ("gone", "Z", "X")


def any_state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return "gone"
