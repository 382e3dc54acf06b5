"""torch waits for the GPU when a profiler stops; on a GPU that hangs this wait has no end, and the trace dies with it.

So the wait is ours, in a thread of its own and with a patience, and torch's is left out. Measured on an H200 with torch
2.11: the wait releases the interpreter; with torch's left out, stopping beside a busy GPU took 6 ms, and the trace had
all operators and every kernel that had finished.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any

# What makes `torch.autograd.profiler.profile` synchronize at its end, by the age of torch.
_SYNC_SWITCHES = ("use_device", "use_cuda")


class DeviceWait:
    """Waits for the current device of the thread that asks. `kind` is torch's name of the device's module ("cuda").

    The first wait that was in vain speaks for all later ones: what a hung GPU costs is one patience, not one a source.
    """

    patience_s = 10.0

    def __init__(self, torch: Any, kind: str = "cuda") -> None:
        self._module = getattr(torch, kind, None)
        self._hung = False

    def finished(self) -> bool:
        """Whether the device has done everything that it was given until now, within the patience.

        An error of the device counts as finished: nothing is left to wait for, and it belongs to the program.
        """
        synchronize = getattr(self._module, "synchronize", None)
        initialized = getattr(self._module, "is_initialized", None)
        if synchronize is None or (initialized is not None and not initialized()):
            # A device that the program has not touched has nothing to do, and a wait would set it up.
            return True
        if self._hung:
            return False
        self._hung = not _returns(synchronize, self._current(), self.patience_s)
        return not self._hung

    def _current(self) -> tuple[int, ...]:
        # Which device is current belongs to a thread: the helper would wait for device 0.
        try:
            return (int(self._module.current_device()),)  # type: ignore[union-attr]
        except (AttributeError, RuntimeError, TypeError):
            return ()

    @property
    def sentence(self) -> str:
        """For a window's notes, when it has not finished."""
        return (
            f"the GPU did not finish within {self.patience_s:g} s: the CPU part and the kernels that finished are saved"
        )


def _returns(synchronize: Any, arguments: tuple[int, ...], patience_s: float) -> bool:
    done = threading.Event()

    def wait() -> None:
        with suppress(Exception):
            synchronize(*arguments)
        done.set()

    # A daemon, because the process must be able to end while its GPU hangs.
    threading.Thread(target=wait, name="dsv4prof-device-wait", daemon=True).start()
    return done.wait(patience_s)


def leave_out_sync(inner: Any) -> bool:
    """Have an autograd profiler end without waiting for its device; False where this torch has no known switch."""
    found = [name for name in _SYNC_SWITCHES if hasattr(inner, name)]
    for name in found:
        setattr(inner, name, None)
    return bool(found)
