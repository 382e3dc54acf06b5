"""Requests that wait for a slot and pages: higher priority first, then in order of arrival."""

from __future__ import annotations

import heapq

from dsv4_engine.request import Request


class WaitingQueue:
    """Ids grow with arrival, so a request that comes back after a retraction stands before all that came later."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Request]] = []
        self._waiting: set[Request] = set()

    def __len__(self) -> int:
        return len(self._waiting)

    def __contains__(self, request: Request) -> bool:
        return request in self._waiting

    def push(self, request: Request) -> None:
        assert request not in self._waiting, request.id
        self._waiting.add(request)
        heapq.heappush(self._heap, (-request.priority, request.id, request))

    def first(self) -> Request | None:
        """Who is next, without taking it out."""
        while self._heap and self._heap[0][2] not in self._waiting:
            heapq.heappop(self._heap)
        return self._heap[0][2] if self._heap else None

    def pop(self) -> Request:
        """Take the next one out; there must be one."""
        request = self.first()
        assert request is not None, "nobody waits"
        heapq.heappop(self._heap)
        self._waiting.remove(request)
        return request

    def remove(self, request: Request) -> None:
        """Take out a request that is withdrawn. Its entry in the heap is skipped once it comes up."""
        self._waiting.remove(request)
        if len(self._heap) > 2 * len(self._waiting) + 16:
            self._heap = [entry for entry in self._heap if entry[2] in self._waiting]
            heapq.heapify(self._heap)
