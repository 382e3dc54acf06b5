"""One moment in which the host reads, or would read, the device."""

from __future__ import annotations

import msgspec

from dsv4prof.sync.context import Context
from dsv4prof.sync.readings import Reading
from dsv4prof.sync.run_ahead import RunAhead


class Read(msgspec.Struct, frozen=True):
    """`index` is the slice to show. `count` reads happen in it.

    Measured only where a device was recorded: `blocked_ns` of host time, by calls named in `calls`, and `idle_ns` of
    device time after it (None where the next launch is not in the trace), and the host's lead over the device round it.
    """

    index: int
    context: Context
    reading: Reading
    count: int = 1
    blocked_ns: int | None = None
    idle_ns: int | None = None
    ahead: RunAhead | None = None
    calls: tuple[str, ...] = ()
