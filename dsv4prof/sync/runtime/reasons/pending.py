"""How much is under way: what makes an upload or a launch wait that alone would not.

Measured on an H200 behind a long kernel: the third pageable upload of over 64 KiB waits for the first; smaller ones
wait once about 4 MiB are queued; the 1,020th launch waits, for the launch queue is full then.
"""

from __future__ import annotations

_LARGE_BYTES, _LARGE_PENDING = 64 << 10, 2
_QUEUED_BYTES = (4 << 20) - (128 << 10)
_LAUNCHES = 1020


class PendingUploads:
    """Counts what the host has queued since it last waited. Behind a device that is busy, `True` is a wait."""

    def __init__(self) -> None:
        self._large = self._bytes = self._launches = 0

    def uploads(self, nbytes: int) -> bool:
        """A staged upload of pageable memory is queued; whether it must wait for room."""
        full = self._large >= _LARGE_PENDING if nbytes > _LARGE_BYTES else self._bytes + nbytes > _QUEUED_BYTES
        if full:
            self.waited()
        self._large += nbytes > _LARGE_BYTES
        self._bytes += nbytes
        return full

    def launches(self) -> bool:
        """A kernel or copy is queued; whether the launch queue is full."""
        self._launches += 1
        if self._launches < _LAUNCHES:
            return False
        self._launches = 0
        return True

    def waited(self) -> None:
        """The host has waited for the device: nothing is pending."""
        self._large = self._bytes = self._launches = 0
