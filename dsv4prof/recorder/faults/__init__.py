"""Known ways to lose a trace, a process or a whole server with torch.profiler, tried on the torch that is installed.

Each fault is a small program in two halves: written with plain torch, and the same mistake made through dsv4prof. A
half runs in a process of its own, because most of them end one, and is judged from outside: by how its process ended
and by the trace files that it left, read back.

    python -m dsv4prof.recorder.faults stop-twice plain FOLDER
"""

from __future__ import annotations

from dsv4prof.recorder.faults.fault import Fault
from dsv4prof.recorder.faults.judge import HalfResult
from dsv4prof.recorder.faults.run import FaultResult, run_faults
from dsv4prof.recorder.faults.table import FAULTS

__all__ = ["FAULTS", "Fault", "FaultResult", "HalfResult", "run_faults"]
