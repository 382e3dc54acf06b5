"""What one line of a driver, a runtime or a server says about a death or a hang."""

from __future__ import annotations

from typing import Literal

import msgspec

Role = Literal["cause", "symptom", "consequence"]
Vendor = Literal["amd", "nvidia", ""]

PAGE_BYTES = 4096
"""How exact the address of an AMD fault and of an Xid is: the page, not the byte."""


class Message(msgspec.Struct, frozen=True, kw_only=True):
    """One message, with what could be read of it.

    `role`: a cause tells what went wrong where; a symptom is the same seen later, by whatever call came next; a
    consequence is somebody else's waiting or cleaning up. `address` is where the device faulted, exact to `page_bytes`
    (1: to the byte). `access` is read, write or atomic where it is told. `kernel` is the function that the message
    names. `times` counts equal messages (an assertion is printed by every thread that fails it). `line` counts from 1.
    `time_s` is on the log's own clock, None where it has none.
    """

    kind: str
    role: Role
    vendor: Vendor = ""
    text: str
    source: str = ""
    line: int = 0
    rank: int | None = None
    pid: int | None = None
    process: str = ""
    time_s: float | None = None
    address: int | None = None
    page_bytes: int = 1
    access: str = ""
    reason: str = ""
    gpu: str = ""
    kernel: str = ""
    place: str = ""
    code: str = ""
    block: str = ""
    thread: str = ""
    after_bytes: int | None = None
    allocation: int | None = None
    allocation_bytes: int | None = None
    waited_s: float | None = None
    collective: str = ""
    sequence: int | None = None
    enqueued: int | None = None
    completed: int | None = None
    times: int = 1
