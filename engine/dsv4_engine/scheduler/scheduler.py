"""What the next step computes: prompts in chunks first, else one decode of all running requests, or both if mixed.

Planning, launching and committing are three calls. With overlap a step is planned while the one before it is still in
flight: its prompts count as computed, and each of its running requests as one to `rows` tokens longer. Where that is
not enough to go on, because pages run out and somebody may have to give way, `plan` asks for the step to be read first.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from dsv4_engine.errors import EngineError
from dsv4_engine.plan import Chunk, Running, StepOutcome, StepPlan, TailLoad, TailSave
from dsv4_engine.request import FinishReason, Request, TokenLogprobs
from dsv4_engine.scheduler.counts import Counts, EngineStats
from dsv4_engine.scheduler.holdings import Holding, Holdings
from dsv4_engine.scheduler.queue import WaitingQueue


@dataclass(frozen=True, kw_only=True)
class Committed:
    """What a step came to. kept: tokens by request, without those that nobody wants any more.

    accept_lens: of the verifies that counted. finished: requests that ended with this step.
    """

    kept: dict[Request, tuple[int, ...]] = field(default_factory=dict)
    logprobs: dict[Request, tuple[TokenLogprobs, ...]] = field(default_factory=dict)
    accept_lens: tuple[int, ...] = ()
    finished: tuple[Request, ...] = ()


class Scheduler:
    """Owns the queues. `rows`: rows of a request in a decode step. `mixed`: chunks and running requests share steps."""

    def __init__(self, holdings: Holdings, *, chunk_tokens: int, rows: int, mixed: bool = False) -> None:
        self._holdings = holdings
        self._chunk_tokens, self._rows, self._mixed = chunk_tokens, rows, mixed
        self._waiting = WaitingQueue()
        self._prefilling: dict[Request, Holding] = {}
        self._decoding: dict[Request, Holding] = {}
        self.counts = Counts(rows)

    @property
    def has_work(self) -> bool:
        return bool(self._waiting or self._prefilling or self._decoding)

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def num_running(self) -> int:
        """Requests with a slot, those being prefilled included."""
        return len(self._prefilling) + len(self._decoding)

    @property
    def could_prefill(self) -> bool:
        """Whether `plan` would make chunks now."""
        first = self._waiting.first()
        return bool(self._prefilling) or (
            first is not None and self._holdings.could_admit(first, reserve=self._reserve())
        )

    def stats(self, *, steps: int) -> EngineStats:
        holdings, counts = self._holdings, self.counts
        return EngineStats(
            running=self.num_running,
            waiting=self.num_waiting,
            free_slots=holdings.num_free_slots,
            page_size=holdings.page_size,
            num_pages=holdings.pages.count,
            free_pages=holdings.pages.num_free,
            cached_pages=holdings.pages.num_cached,
            evictable=holdings.tree.num_evictable,
            num_tails=holdings.tails.count,
            free_tails=holdings.tails.num_free,
            steps=steps,
            finished=counts.finished,
            aborted=counts.aborted,
            retracted=counts.retracted,
            prompt_tokens=counts.prompt_tokens,
            cached_tokens=counts.cached_tokens,
            output_tokens=counts.output_tokens,
            verifies=counts.verifies,
            accepted=counts.accepted,
            accepted_at=tuple(counts.accepted_at),
        )

    def add(self, request: Request) -> None:
        """Queue a request; EngineError where it could not be served even alone."""
        pages, most = self._holdings.most_pages(request), self._holdings.pages.count
        if pages > most:
            size = self._holdings.page_size
            raise EngineError(
                f"the request may need {pages} pages of {size} tokens, and the caches have {most}",
                hint="shorten the prompt, ask for fewer new tokens, or give the caches more pages",
            )
        self._waiting.push(request)

    def plan(self, *, in_flight: bool = False, kind: str | None = None) -> StepPlan | None:
        """The next step, whose work must then be launched; in_flight: whether one is launched and not read.

        kind: "prefill" makes chunks or nothing, "decode" none; by default prompts come first. None where there is
        nothing of that kind to do, or nothing before the step in flight is read.
        """
        if self._mixed and kind is None:
            return self._plan_mixed(in_flight)
        if kind != "decode":
            chunks, loads = self._next_chunks(self._chunk_tokens)
            if chunks or kind == "prefill":
                return self._assemble(chunks, loads, []) if chunks else None
        running = self._ready_to_decode(in_flight)
        return self._assemble([], [], running) if running else None

    def _plan_mixed(self, in_flight: bool) -> StepPlan | None:
        """Running requests have their rows and pages first, and prompts what is left."""
        running = self._ready_to_decode(in_flight)
        if running is None:
            return None
        chunks, loads = self._next_chunks(max(self._chunk_tokens - len(running) * self._rows, 1))
        return self._assemble(chunks, loads, running) if chunks or running else None

    def commit(self, plan: StepPlan, outcome: StepOutcome) -> Committed:
        """Apply the outcome of the oldest step in flight. Requests that ended meanwhile take nothing from it."""
        ended = {request for request in plan.requests if request.finish_reason is not None}
        accept_lens = self._count_verifies(plan, outcome, ended)
        kept: dict[Request, tuple[int, ...]] = {}
        told: dict[Request, tuple[TokenLogprobs, ...]] = {}
        logprobs = outcome.logprobs or ((),) * len(outcome.tokens)
        for request, tokens, known in zip(plan.requests, outcome.tokens, logprobs, strict=True):
            if tokens and request not in ended:
                kept[request] = request.take(tokens, known)
                told[request] = known[: len(kept[request])]
        for chunk in plan.chunks:
            if chunk.request not in ended:
                self._commit_chunk(chunk)
        for running in plan.running:
            if running.request not in ended:
                self._commit_decode(running.request)
        return Committed(
            kept=kept,
            logprobs={request: known for request, known in told.items() if known},
            accept_lens=accept_lens,
            finished=self._finish(kept),
        )

    def abort(self, request: Request) -> bool:
        """Withdraw a request in whatever state; what is in flight for it is dropped. False if it had ended already."""
        if request.finish_reason is not None:
            return False
        if request in self._waiting:
            self._waiting.remove(request)
        else:
            queue = self._prefilling if request in self._prefilling else self._decoding
            self._holdings.release(queue.pop(request))
        request.finish_reason = FinishReason.ABORT
        self.counts.aborted += 1
        return True

    def _next_chunks(self, budget: int) -> tuple[list[Chunk], list[TailLoad]]:
        """Chunks of prompts within the budget: those begun first, then as many waiting ones as fit."""
        chunks: list[Chunk] = []
        loads: list[TailLoad] = []
        for request in self._to_prefill(loads):
            length = min(budget, request.prefill_len - request.prefilled)
            chunks.append(Chunk(request=request, start=request.prefilled, length=length))
            budget -= length
            if budget == 0:
                break
        return chunks, loads

    def _to_prefill(self, loads: list[TailLoad]) -> Iterator[Request]:
        yield from list(self._prefilling)
        while (request := self._waiting.first()) is not None:
            admitted = self._holdings.admit(request, reserve=self._reserve())
            if admitted is None:
                return
            holding, load = admitted
            self._prefilling[self._waiting.pop()] = holding
            request.prefilled = 0 if load is None else load.boundary
            if load is not None:
                loads.append(load)
            self.counts.admit(request)
            yield request

    def _reserve(self) -> int:
        """Pages to leave for those that run: one for each that is not sure to end within its own."""
        holders = (*self._prefilling.values(), *self._decoding.values())
        return sum(self._holdings.pages_for(holding.limit) > len(holding.pages) for holding in holders)

    def _ready_to_decode(self, in_flight: bool) -> list[Holding] | None:
        """Running requests, all with pages for their rows; None where the step in flight is to be read first.

        A request that is sure to end with the step in flight is left out. Where pages run out for the others, the one
        of lowest priority goes back to the queue, of several the last that came.
        """
        running = [holding for holding in self._decoding.values() if not _ends_anyway(holding)]
        while sum(map(self._holdings.missing, running)) > self._holdings.available:
            if in_flight:
                return None
            victim = min((*running, *self._prefilling.values()), key=lambda h: (h.request.priority, -h.request.id))
            assert len(running) + len(self._prefilling) > 1, "a request that was admitted does not fit"
            self._retract(victim)
            running = [holding for holding in running if holding is not victim]
        for holding in running:
            self._holdings.grow(holding)
        return running

    def _retract(self, holding: Holding) -> None:
        """Back to the queue: prompt and output are prefilled again later, from where the tree still has them."""
        request = holding.request
        self._prefilling.pop(request, None)
        self._decoding.pop(request, None)
        self._holdings.release(holding)
        request.prefilled = 0
        request.prefill_len = len(request.prompt) + len(request.output)
        self._waiting.push(request)
        self.counts.retracted += 1

    def _assemble(self, chunks: list[Chunk], loads: list[TailLoad], running: Iterable[Holding]) -> StepPlan:
        """The plan, and the bounds as they are once it is launched."""
        saves: list[TailSave] = []
        entries: list[Running] = []
        for chunk in chunks:
            holding = self._prefilling[chunk.request]
            saves += self._holdings.reserve_tails(holding, low=chunk.start, high=chunk.end, written=chunk.start)
            chunk.request.prefilled = chunk.end
            if chunk.completes:
                holding.low = holding.high = chunk.end
                holding.in_flight = 1
                self._decoding[chunk.request] = self._prefilling.pop(chunk.request)
        for holding in running:
            top = holding.high + self._rows
            saves += self._holdings.reserve_tails(holding, low=holding.low, high=top, written=holding.high)
            entries.append(Running(request=holding.request, max_cached=holding.high))
            holding.advance(self._rows)
        return StepPlan(
            chunks=tuple(chunks),
            running=tuple(entries),
            table_writes=self._holdings.take_writes(),
            tail_loads=tuple(loads),
            tail_saves=tuple(saves),
        )

    def _count_verifies(self, plan: StepPlan, outcome: StepOutcome, ended: Collection[Request]) -> tuple[int, ...]:
        counted = []
        for running, accepted in zip(plan.running, outcome.accept_lens, strict=False):
            if running.request not in ended:
                running.request.accept_lens.append(accepted)
                self.counts.verify(accepted)
                counted.append(accepted)
        return tuple(counted)

    def _finish(self, kept: Mapping[Request, tuple[int, ...]]) -> tuple[Request, ...]:
        """Let go of the requests that ended with the tokens they have just taken."""
        finished = tuple(request for request in kept if request.finish_reason is not None)
        for request in finished:
            self._holdings.release(self._decoding.pop(request))
        self.counts.output_tokens += sum(map(len, kept.values()))
        self.counts.finished += len(finished)
        return finished

    def _commit_chunk(self, chunk: Chunk) -> None:
        request = chunk.request
        holding = self._decoding[request] if request in self._decoding else self._prefilling[request]
        self._holdings.publish(holding, chunk.end)
        if chunk.completes:
            holding.settle(self._rows)

    def _commit_decode(self, request: Request) -> None:
        holding = self._decoding[request]
        holding.settle(self._rows)
        self._holdings.publish(holding, request.cached_len)


def _ends_anyway(holding: Holding) -> bool:
    return len(holding.request.output) + holding.in_flight >= holding.request.max_output
