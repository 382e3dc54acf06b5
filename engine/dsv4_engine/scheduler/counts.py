"""What the scheduler counts, and the statistics that are told of it."""

from __future__ import annotations

from dataclasses import dataclass

from dsv4_engine.request import Request


class Counts:
    """Sums since the engine was made. accepted_at: by position in the window, how often its draft was accepted."""

    def __init__(self, rows: int) -> None:
        self.accepted_at = [0] * (rows - 1)
        self.verifies = 0
        self.accepted = 0
        self.finished = 0
        self.aborted = 0
        self.retracted = 0
        self.prompt_tokens = 0
        self.cached_tokens = 0
        self.output_tokens = 0

    def admit(self, request: Request) -> None:
        """A request begins at `prefilled`; only its first beginning counts, not one after a retraction."""
        if not request.admitted:
            request.cached_tokens = request.prefilled
            self.prompt_tokens += len(request.prompt)
            self.cached_tokens += request.cached_tokens
        request.admitted = True

    def verify(self, accepted: int) -> None:
        """One verify gained `accepted` tokens: that many less one of its drafts were right."""
        self.verifies += 1
        self.accepted += accepted
        for position in range(accepted - 1):
            self.accepted_at[position] += 1


@dataclass(frozen=True, kw_only=True)
class EngineStats:
    """Where the engine stands, and sums since it was made.

    running: requests with a slot; waiting: those without. pages are of page_size tokens: each is free, owned by a
    request, or cached; evictable: cached ones that no running request uses. retracted: how often a request had to give
    its pages back before its end. prompt_tokens, cached_tokens: of admitted prompts, and how many of them the prefix
    cache had. verifies, accepted: of speculation, and the tokens gained. accepted_at: by position, accepted drafts.
    """

    running: int
    waiting: int
    free_slots: int
    page_size: int
    num_pages: int
    free_pages: int
    cached_pages: int
    evictable: int
    num_tails: int
    free_tails: int
    steps: int
    finished: int
    aborted: int
    retracted: int
    prompt_tokens: int
    cached_tokens: int
    output_tokens: int
    verifies: int
    accepted: int
    accepted_at: tuple[int, ...]

    @property
    def accept_length(self) -> float | None:
        """Mean tokens of a verify; None before the first."""
        return self.accepted / self.verifies if self.verifies else None

    @property
    def owned_pages(self) -> int:
        """Pages that belong to requests alone."""
        return self.num_pages - self.free_pages - self.cached_pages
