"""What a sync protects: memory that two parties touch without an order between them, and promises that do not hold.

`tracker` hears what a program does with a device and writes it down as `events`; `judge` keeps who is ordered behind
whom (`clocks`) and which memory was touched by whom (`memory`), and names hazards. The same events may be judged again
with some waits left out (`replay`): what appears then is what those waits protect (`explain`).
"""

from dsv4prof.sync.runtime.hazards.plans import check_plan, guard_plan
from dsv4prof.sync.runtime.hazards.watch import HazardWatch

__all__ = ["HazardWatch", "check_plan", "guard_plan"]
