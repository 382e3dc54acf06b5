"""The serving loop on the fake launcher: everything of the engine but the model."""

from __future__ import annotations

from collections.abc import Sequence

from dsv4_engine.hooks import NullHooks
from dsv4_engine.loop import Launched, StepLoop
from dsv4_engine.request import Request
from dsv4_engine.scheduler.holdings import Holdings
from dsv4_engine.scheduler.scheduler import Committed, Scheduler
from fake_launcher import FakeLauncher

PAGE = 4


class FakeLoop:
    def __init__(
        self, *, max_requests=3, num_pages=12, num_tails=4, drafts=2, chunk_tokens=6, mixed=False, overlap=False,
        page_size=PAGE, hooks=None, logprobs=False,
    ):  # fmt: skip
        rows = drafts + 1
        self.launcher = FakeLauncher(page_size=page_size, drafts=drafts, logprobs=logprobs)
        self.holdings = Holdings(
            max_requests=max_requests, num_pages=num_pages, page_size=page_size, num_tails=num_tails, rows=rows,
            lookahead=int(drafts > 0),
        )  # fmt: skip
        self.scheduler = Scheduler(self.holdings, chunk_tokens=chunk_tokens, rows=rows, mixed=mixed)
        self.loop = StepLoop(self.scheduler, self.launcher, hooks or NullHooks(), overlap=overlap)
        self._requests = 0
        self._max_requests = max_requests

    def add(self, prompt: Sequence[int], max_output: int, *, stop: frozenset[int] = frozenset(), priority=0) -> Request:
        request = Request(
            id=self._requests, prompt=tuple(prompt), max_output=max_output, stop_ids=stop, priority=priority
        )
        self.scheduler.add(request)
        self._requests += 1
        return request

    def step(self) -> tuple[Launched, Committed]:
        made = self.loop.step()
        self.check()
        return made

    def drain(self, limit: int = 5000) -> int:
        """Steps until nothing is left."""
        steps = 0
        while self.loop.has_work:
            self.step()
            steps += 1
            assert steps < limit, "the loop makes no progress"
        return steps

    def check(self) -> None:
        """Every page, tail and slot is somebody's, exactly once."""
        holdings, scheduler = self.holdings, self.scheduler
        holdings.tree.check()
        running = [*scheduler._prefilling.values(), *scheduler._decoding.values()]
        own = [page for h in running for page in h.own_pages]
        assert len(own) == len(set(own)) == holdings.pages.num_owned
        assert all(len(h.pages) <= holdings.most_pages(h.request) for h in running)
        tails = [tail for h in running for tail in h.tails.values()]
        assert len(tails) == len(set(tails)) == holdings.tails.num_owned
        assert len({h.slot for h in running}) == len(running) == self._max_requests - holdings.num_free_slots
        cached = {node.page for node in holdings.tree.nodes()}
        assert cached.isdisjoint(own)
        assert all([node.page for node in h.node.path()] == h.pages[: h.node.depth] for h in running)
        locks = sum(h.node.depth for h in running)
        assert locks == sum(node.locks for node in holdings.tree.nodes())

    def check_all_free(self) -> None:
        """Once nothing runs and the cache is flushed, everything is back."""
        assert not self.loop.has_work and self.holdings.num_free_slots == self._max_requests
        self.holdings.tree.flush()
        assert self.holdings.pages.num_free == self.holdings.pages.count
        assert self.holdings.tails.num_free == self.holdings.tails.count
