"""A record that was not closed belongs to a process that died, or to one that is still running: tell them apart."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_TOLERANCE_S = 2.0


def is_running(facts: Mapping[str, Any]) -> bool:
    """Whether the process of these facts runs on this machine; False where the system cannot say.

    A number that was given to a later process is known by its start.
    """
    pid, began_ns = facts.get("pid"), facts.get("monotonic_ns")
    if facts.get("host") != socket.gethostname() or not isinstance(pid, int) or not isinstance(began_ns, int):
        return False
    try:
        words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        state, started = words[0], int(words[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, IndexError, ValueError):
        return False
    return state not in "ZX" and started <= began_ns / 1e9 + _TOLERANCE_S
