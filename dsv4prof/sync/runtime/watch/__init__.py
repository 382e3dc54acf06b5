"""Host syncs of a running program: layers that see them, one event a call, regions, budgets and allowances.

Nothing here needs torch when it is imported.
"""

from __future__ import annotations

from dsv4prof.sync.runtime.watch.policy import Allowance, Level, SyncDisallowedError
from dsv4prof.sync.runtime.watch.scopes import allow_syncs, region, step
from dsv4prof.sync.runtime.watch.watching import SyncWatch

__all__ = ["Allowance", "Level", "SyncDisallowedError", "SyncWatch", "allow_syncs", "region", "step"]
