"""A signal sets a flag and nothing else, and leaves the program's own handlers as they were."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from types import FrameType

import pytest

from dsv4prof.errors import UsageError
from dsv4prof.recorder.control_signal import listen

if not hasattr(signal, "SIGUSR2"):
    pytest.skip("this system has no SIGUSR2", allow_module_level=True)


class Manager:
    def __init__(self) -> None:
        self.toggles = 0

    def request_toggle(self) -> None:
        self.toggles += 1


@pytest.fixture(autouse=True)
def _clean():  # type: ignore[no-untyped-def]
    before = signal.signal(signal.SIGUSR2, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGUSR2, before)


def send(number: int = signal.SIGUSR2) -> None:
    os.kill(os.getpid(), number)
    time.sleep(0.01)


def test_each_signal_is_one_request_and_closing_puts_the_former_handler_back() -> None:
    manager = Manager()
    with listen(manager) as control:
        send()
        send()
    assert manager.toggles == 2
    assert signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL
    control.close()


def test_a_handler_of_the_program_is_refused_or_taken_over_and_given_back() -> None:
    seen = []

    def own(number: int, frame: FrameType | None) -> None:
        seen.append(number)

    signal.signal(signal.SIGUSR2, own)
    manager = Manager()
    with pytest.raises(UsageError, match="handles SIGUSR2 already"):
        listen(manager)
    assert signal.getsignal(signal.SIGUSR2) is own
    with listen(manager, replace=True):
        send()
    send()
    assert (manager.toggles, seen) == (1, [signal.SIGUSR2])


def test_two_of_ours_are_refused_as_well() -> None:
    manager = Manager()
    with listen(manager), pytest.raises(UsageError, match="already"):
        listen(manager)


def test_a_handler_that_was_laid_over_ours_stays() -> None:
    control = listen(Manager())
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    control.close()
    assert signal.getsignal(signal.SIGUSR2) is signal.SIG_IGN


def test_an_ignored_signal_is_no_handler() -> None:
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    with listen(Manager()):
        pass
    assert signal.getsignal(signal.SIGUSR2) is signal.SIG_IGN


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (signal.SIGKILL, "SIGKILL"),
        (signal.SIGSTOP, "SIGSTOP"),
        (signal.SIGSEGV, "means something else"),
        (signal.SIGTERM, "means something else"),
        (999, "no signal 999"),
        (0, "no signal 0"),
    ],
)
def test_what_cannot_be_handled_is_refused(number: int, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        listen(Manager(), number)


def test_only_the_main_thread_may() -> None:
    errors: list[str] = []
    control = listen(Manager())

    def elsewhere() -> None:
        for act in (lambda: listen(Manager(), signal.SIGUSR1), control.close):
            try:
                act()
            except UsageError as error:
                errors.append(error.message)

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert len(errors) == 2
    assert all("main thread only" in message for message in errors)
    control.close()
    assert signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL


def test_a_handler_of_c_code_is_never_replaced_and_a_forked_child_asks_for_nothing() -> None:
    code = """
import faulthandler, os, signal, sys
from dsv4prof.errors import UsageError
from dsv4prof.recorder.control_signal import listen
class Manager:
    toggles = 0
    def request_toggle(self): self.toggles += 1
manager = Manager()
listen(manager)
pid = os.fork()
if pid == 0:
    os.kill(os.getpid(), signal.SIGUSR2)
    os._exit(manager.toggles)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
faulthandler.register(signal.SIGUSR1, file=sys.stderr)
try:
    listen(manager, signal.SIGUSR1, replace=True)
except UsageError as error:
    print(error.message)
"""
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert child.returncode == 0, child.stderr
    assert "C code" in child.stdout
