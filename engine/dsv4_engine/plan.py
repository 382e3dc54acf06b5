"""What one step is to do, and what came of it: the values that scheduler, worker and engine loop hand each other.

A plan is made from what the host knows. With overlap the host plans step n + 1 before it has read step n, so a running
request's length is a bound, and its newest token is on the device alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dsv4_engine.request import Request, TokenLogprobs


@dataclass(frozen=True, kw_only=True)
class Chunk:
    """Tokens `start` to `start + length` of a request that is being prefilled."""

    request: Request
    start: int
    length: int

    @property
    def end(self) -> int:
        return self.start + self.length

    @property
    def completes(self) -> bool:
        """Whether the prefill ends with this chunk, so that its last row yields an output token."""
        return self.end == self.request.prefill_len


@dataclass(frozen=True, kw_only=True)
class Running:
    """A request that decodes. max_cached: upper bound of its cached tokens before this step, exact without overlap."""

    request: Request
    max_cached: int


@dataclass(frozen=True, kw_only=True)
class TableWrite:
    """Column `column` of the request table's row `slot` becomes page `page`."""

    slot: int
    column: int
    page: int


@dataclass(frozen=True, kw_only=True)
class TailLoad:
    """Before the step: the tail of the prefix of `boundary` tokens goes into the rings of `slot`."""

    slot: int
    boundary: int
    tail: int


@dataclass(frozen=True, kw_only=True)
class TailSave:
    """During the step: once row `boundary - 1` of `slot` is computed, its tail is kept in row `tail` of the tail pools.

    A step whose committed rows of `slot` do not include position `boundary - 1` leaves row `tail` as it was.
    """

    slot: int
    boundary: int
    tail: int


@dataclass(frozen=True, kw_only=True)
class PeerLoad:
    """Attention DP: the most that any replica computes in this step, so that all make the same forwards.

    chunk_rows: prefill rows; where it is not 0 all replicas make a prefill step, and a replica without chunks computes
    one row of padding. running: requests that decode; a replica without any computes one of padding.
    """

    chunk_rows: int
    running: int


@dataclass(frozen=True, kw_only=True)
class StepPlan:
    """Chunks first, then running requests; both at once is a mixed step."""

    chunks: tuple[Chunk, ...] = ()
    running: tuple[Running, ...] = ()
    table_writes: tuple[TableWrite, ...] = ()
    tail_loads: tuple[TailLoad, ...] = ()
    tail_saves: tuple[TailSave, ...] = ()
    peers: PeerLoad | None = None

    @property
    def kind(self) -> str:
        """`prefill`, `decode` or `mixed`; where peers compute prompts, a step without chunks is a prefill too."""
        if not self.chunks:
            return "prefill" if self.peers is not None and self.peers.chunk_rows else "decode"
        return "mixed" if self.running else "prefill"

    @property
    def requests(self) -> tuple[Request, ...]:
        """Of the chunks, then of the running ones: the order of a StepOutcome."""
        return (*(chunk.request for chunk in self.chunks), *(running.request for running in self.running))


@dataclass(frozen=True, kw_only=True)
class StepOutcome:
    """Tokens for each request of the plan, in its order; empty where a prompt is not complete yet.

    accept_lens: tokens gained by each running request's verify, before any limit; empty without speculation.
    logprobs: one for each token, where the request asked for them, else empty.
    """

    tokens: tuple[tuple[int, ...], ...]
    accept_lens: tuple[int, ...] = ()
    logprobs: tuple[tuple[TokenLogprobs, ...], ...] = ()
