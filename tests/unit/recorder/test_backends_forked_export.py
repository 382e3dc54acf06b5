"""Saving in a copy of the process: the program goes on, and whatever becomes of the copy, nothing stays behind."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest

from dsv4prof.recorder.backends import forked_export
from dsv4prof.recorder.backends.forked_export import is_safe, is_worth_it, save_in_fork

NO_DEVICE = SimpleNamespace()
if sys.platform != "linux" or not is_safe(NO_DEVICE):
    pytest.skip("this process cannot be copied safely", allow_module_level=True)


@pytest.fixture(autouse=True)
def _no_child_is_left() -> Iterator[None]:
    before = {child.pid for child in psutil.Process().children()}
    yield
    assert {child.pid for child in psutil.Process().children()} <= before, "a child or a zombie"


def writing(path: Path) -> Callable[[], object]:
    return lambda: path.write_text(str(os.getpid()))


def test_it_is_saved_by_another_process_that_runs_none_of_ours(tmp_path: Path) -> None:
    path = tmp_path / "t"
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    assert save_in_fork(writing(path), path, 0.1) is None
    assert int(path.read_text()) != os.getpid()
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before


def fail() -> None:
    raise RuntimeError("cannot be saved")


def hang() -> None:
    time.sleep(60)


def crash() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(
    ("save", "words"),
    [(fail, "it failed"), (hang, "it did not end within 0 s"), (crash, "it was ended by signal 9"),
     (sys.exit, "it failed")],
)  # fmt: skip
def test_a_copy_that_does_not_save_is_told_in_bounded_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, save: Callable[[], object], words: str
) -> None:
    monkeypatch.setattr(forked_export, "_PATIENCE_S", 0.3)
    began = time.monotonic()
    assert save_in_fork(save, tmp_path / "t", 0.0) == words
    assert time.monotonic() - began < 10


def test_the_program_goes_on_while_the_copy_holds_its_interpreter(tmp_path: Path) -> None:
    """And would not go on while a thread held it: the fault that the copy answers."""
    path = tmp_path / "t"

    def save() -> None:
        ctypes.PyDLL(None).usleep(600_000)
        path.write_text("x")

    assert longest_gap_beside(lambda: save_in_fork(save, path, 0.1)) < 0.4
    assert path.exists()
    assert longest_gap_beside(save) > 0.5


def longest_gap_beside(call: Callable[[], object]) -> float:
    """Seconds between two looks at the clock on this thread, past the end of `call` on another one."""
    thread = threading.Thread(target=call)
    longest, last, after = 0.0, time.perf_counter(), 0
    thread.start()
    while after < 20:
        after += not thread.is_alive()
        time.sleep(0.001)
        now = time.perf_counter()
        longest, last = max(longest, now - last), now
    return longest


@pytest.mark.parametrize("thief", ["ignores SIGCHLD", "waits for every child"])
@pytest.mark.parametrize("whole", [True, False])
def test_where_somebody_else_takes_the_status_the_file_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, thief: str, whole: bool
) -> None:
    path = tmp_path / "t"
    ends, taken = forked_export._ends, []

    def steal(handle: int, patience_s: float) -> bool:
        ended = ends(handle, patience_s)
        taken.append(os.waitpid(-1, 0))
        return ended

    before = signal.getsignal(signal.SIGCHLD)
    if thief.startswith("ignores"):
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    else:
        monkeypatch.setattr(forked_export, "_ends", steal)
    try:
        fault = save_in_fork(writing(path) if whole else crash, path, 0.1)
    finally:
        signal.signal(signal.SIGCHLD, before)
    assert fault == (None if whole else "it left no file")
    assert len(taken) == thief.startswith("waits")


def test_the_programs_handlers_run_once_and_here(tmp_path: Path) -> None:
    """A server's event loop shares its wake-up file with the copy, and would be told to stop twice."""
    path, ran = tmp_path / "t", []
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    os.set_blocking(reader, False)
    before = signal.signal(signal.SIGUSR1, lambda *_: ran.append(os.getpid()))
    wakeup = signal.set_wakeup_fd(writer)

    def save() -> None:
        os.kill(os.getpid(), signal.SIGUSR1)
        path.write_text(str(ran))

    try:
        assert save_in_fork(save, path, 0.1) is None
        assert path.read_text() == "[]"
        with pytest.raises(BlockingIOError):
            os.read(reader, 1)
    finally:
        signal.set_wakeup_fd(wakeup)
        signal.signal(signal.SIGUSR1, before)
        os.close(reader)
        os.close(writer)


@pytest.mark.parametrize("name", ["fork", "pidfd_open"])
def test_a_system_that_refuses_is_told_of_and_leaves_no_child(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def refuse(*_: Any) -> int:
        raise OSError(12, "Cannot allocate memory")

    monkeypatch.setattr(os, name, refuse)
    fault = save_in_fork(hang, tmp_path / "t", 0.1)
    assert fault == "the system refused it ([Errno 12] Cannot allocate memory)"


def test_an_interrupt_while_waiting_ends_the_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: Any) -> bool:
        monkeypatch.undo()
        raise KeyboardInterrupt

    monkeypatch.setattr(forked_export, "_ends", interrupt)
    with pytest.raises(KeyboardInterrupt):
        save_in_fork(hang, tmp_path / "t", 0.1)


def test_a_process_that_drives_a_device_is_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("cuda", "xpu"):
        module = SimpleNamespace(is_initialized=lambda: True)
        assert not is_safe(SimpleNamespace(**{name: module}))
    assert is_safe(SimpleNamespace(cuda=SimpleNamespace(is_initialized=lambda: False)))
    for device in ("/dev/nvidia0", "/dev/kfd", "/dev/dri/renderD128", "/dev/infiniband/uverbs0"):
        monkeypatch.setattr(forked_export, "_open_files", lambda device=device: iter(["/dev/null", device]))
        assert not is_safe(NO_DEVICE), device


def test_open_files_are_seen(tmp_path: Path) -> None:
    with (tmp_path / "seen").open("w"):
        assert str(tmp_path / "seen") in list(forked_export._open_files())


def test_without_a_handle_on_a_process_nothing_is_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> int:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(os, "pidfd_open", refuse)
    assert not is_safe(NO_DEVICE)


def test_a_copy_pays_off_where_saving_takes_long_for_the_size_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forked_export, "resident_bytes", lambda: 500 << 20)
    assert [is_worth_it(seconds) for seconds in (0.0, 0.03, 0.2, 2.0)] == [False, False, True, True]
    monkeypatch.setattr(forked_export, "resident_bytes", lambda: 20 << 30)
    assert [is_worth_it(seconds) for seconds in (0.2, 1.0, 3.0)] == [False, False, True]
