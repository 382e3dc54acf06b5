"""Attention DP: replicas schedule requests of their own, and share experts, so all must make the same forwards.

Before each step they tell each other, on the host, what they could do. If any has a prompt to compute, all make a
prefill step, else all decode; who has nothing of that kind takes part with padding.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from dsv4_engine.plan import PeerLoad, StepOutcome, StepPlan
from dsv4_engine.scheduler.scheduler import Committed, Scheduler

Exchange = Callable[..., list[tuple[int, ...]]]
"""Every rank's numbers, by rank; all ranks must call it, in the same order."""


class ReplicaScheduler:
    """A scheduler whose plans name the peers' load. All replicas must make the same calls in the same order."""

    def __init__(self, scheduler: Scheduler, exchange: Exchange) -> None:
        self._scheduler, self._exchange = scheduler, exchange
        self._launched_work = False

    @property
    def has_work(self) -> bool:
        """Whether any replica has work; a collective."""
        return any(told for (told,) in self._exchange(int(self._scheduler.has_work)))

    def plan(self, *, in_flight: bool = False) -> StepPlan | None:
        """The next step of this replica, without requests where only others have some; None where nobody has any."""
        prefills = any(told for (told,) in self._exchange(int(self._scheduler.could_prefill)))
        # A step in flight that computes padding here has nothing to wait for.
        own = self._scheduler.plan(
            in_flight=in_flight and self._launched_work, kind="prefill" if prefills else "decode"
        )
        plan = own or StepPlan()
        told = self._exchange(sum(chunk.length for chunk in plan.chunks), len(plan.running))
        peers = PeerLoad(chunk_rows=max(rows for rows, _ in told), running=max(running for _, running in told))
        if not peers.chunk_rows and not peers.running:
            return None
        self._launched_work = own is not None
        return replace(plan, peers=peers)

    def commit(self, plan: StepPlan, outcome: StepOutcome) -> Committed:
        return self._scheduler.commit(plan, outcome)
