"""Kineto holds the interpreter while it saves, so an export beside a serving program stops all of its threads.

`kineto_results.save` never lets go of the GIL (torch 2.9 to 2.14): about 2 us an event, 1.2 s for 600,000 events.
An export on a thread of its own is beside the program in name only; a loop that ends before its last gap is measured
does not see it. A copy of the process has an interpreter of its own, so it saves in a fork that does nothing else, and
a thread waits for it without the interpreter. What is left of the stall is the fork itself: 15 to 45 ms with 0.4 to
1.3 GB resident, 8 to 30 ms more for each further GB (torch 2.13 and 2.14, two cores).

The stall remains, and only a window's size limit bounds it, where a fork is a risk: in a process that drives a GPU or
an RDMA card, whose mappings a copy must not share, and where the system has no pidfd or refuses the fork.
"""

from __future__ import annotations

import ctypes
import gc
import os
import select
import signal
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

from dsv4prof.recorder.release import resident_bytes

# What an open device looks like; a driver keeps its file open for as long as it has a context, whoever uses it.
_DEVICES = ("/dev/nvidia", "/dev/kfd", "/dev/dri/", "/dev/dxg", "/dev/infiniband/", "/dev/davinci", "/dev/accel")
_MODULES = ("cuda", "xpu", "mtia", "hpu", "npu")
# A fork's own stall as measured, seconds and seconds a resident byte.
_FORK_S = 0.005
_FORK_S_PER_BYTE = 30e-12
_WORTH = 3
# A copy may hang, in a lock that some thread held in the moment of the fork. Less than the patience of an exit, so that
# a trace can still be saved on the thread.
_PATIENCE_S = 5.0
_SLOWEST = 10
_AFTER_KILL_S = 2.0
_PR_SET_PDEATHSIG = 1


def is_safe(torch: Any) -> bool:
    """Whether a copy of this process may run for a while: on Linux, with nothing open that a copy must not share."""
    return sys.platform == "linux" and _has_pidfd() and not _drives_a_device(torch)


def is_worth_it(export_s: float) -> bool:
    """Whether saving for `export_s` seconds is a stall so long that one by a fork is little beside it."""
    return export_s > _WORTH * (_FORK_S + resident_bytes() * _FORK_S_PER_BYTE)


def save_in_fork(save: Callable[[], object], path: Path, export_s: float) -> str | None:
    """Call `save`, which writes `path` whole or not at all, in a fork; about `export_s` seconds are expected.

    None when it ran to its end there; otherwise a sentence's end that says why not. `save` has then done nothing here,
    and may be called. It must hold all that it needs: fork hooks run before it, our own among them.
    """
    # Python 3.12 warns of a fork beside threads; where warnings are errors, it would raise after the fork.
    warnings.filterwarnings("ignore", category=DeprecationWarning, module=__name__.replace(".", r"\."))
    libc, parent = ctypes.CDLL(None), os.getpid()
    try:
        with _signals_blocked():
            child = os.fork()
            if child == 0:
                _save_and_leave(save, libc, parent)
            handle = _handle_of(child)
    except (OSError, RuntimeError) as error:
        return f"the system refused it ({error})"
    if handle is None:
        return _by_the_file(path)
    try:
        return _verdict(handle, path, _PATIENCE_S + _SLOWEST * export_s)
    finally:
        _end_for_good(handle)


def _save_and_leave(save: Callable[[], object], libc: Any, parent: int) -> NoReturn:
    """All that the child does. Other threads may have held any lock in the moment of the fork: nothing is imported,
    printed or collected, and neither exit hooks nor static destructors run.
    """
    status = 1
    try:
        gc.disable()
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        _offer_to_oom_killer()
        # A parent that died before the line above sends nothing.
        if os.getppid() == parent:
            save()
            status = 0
    finally:
        os._exit(status)


def _offer_to_oom_killer() -> None:
    """Where memory ends, the copy goes and not the server."""
    try:
        os.write(os.open("/proc/self/oom_score_adj", os.O_WRONLY), b"1000")
    except OSError:
        return


def _handle_of(child: int) -> int | None:
    """A number is given to another process once somebody has taken the child's status; a handle is not. None when that
    has happened already.
    """
    try:
        return os.pidfd_open(child)
    except ProcessLookupError:
        return None
    except OSError:
        os.kill(child, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(child, 0)
        raise


def _verdict(handle: int, path: Path, patience_s: float) -> str | None:
    if not _ends(handle, patience_s):
        return f"it did not end within {patience_s:.0f} s"
    status = _status(handle)
    if status is None:
        return _by_the_file(path)
    if status < 0:
        return f"it was ended by signal {-status}"
    return "it failed" if status else None


def _by_the_file(path: Path) -> str | None:
    """For a program that ignores SIGCHLD, or waits for every child: the status is gone."""
    return None if path.exists() else "it left no file"


def _end_for_good(handle: int) -> None:
    """Leave no child and no zombie, also where an exception came in between."""
    # Nobody is there any more when all went well.
    with suppress(OSError):
        signal.pidfd_send_signal(handle, signal.SIGKILL)
        if _ends(handle, _AFTER_KILL_S):
            _status(handle)
    os.close(handle)


def _ends(handle: int, patience_s: float) -> bool:
    """Wait without the interpreter, and without a look at other children of the program."""
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    return bool(poll.poll(patience_s * 1000))


def _status(handle: int) -> int | None:
    """The exit status of a child that has ended, negative for a signal; None when somebody else has taken it."""
    try:
        ended = os.waitid(os.P_PIDFD, handle, os.WEXITED | os.WNOHANG)
    except ChildProcessError:
        return None
    if ended is None:
        return None
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


@contextmanager
def _signals_blocked() -> Iterator[None]:
    """The program's handlers are not run by the child, which inherits what its thread blocks; nor is the wake-up file
    written, which it shares with the program's event loop.
    """
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _has_pidfd() -> bool:
    """Since Linux 5.3, unless a sandbox forbids it."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):
        return False
    return True


def _drives_a_device(torch: Any) -> bool:
    for name in _MODULES:
        initialized = getattr(getattr(torch, name, None), "is_initialized", None)
        if initialized is not None and initialized():
            return True
    return any(target.startswith(_DEVICES) for target in _open_files())


def _open_files() -> Iterator[str]:
    for entry in Path("/proc/self/fd").iterdir():
        # The listing's own file is among them, and closed by now.
        with suppress(OSError):
            yield str(entry.readlink())
