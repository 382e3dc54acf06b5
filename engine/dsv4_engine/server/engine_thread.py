"""The one thread that owns the engine, and how requests reach it and tokens leave it.

Everything comes in through one queue. An idle thread is blocked on it; a busy one looks into it between two steps. What
leaves is handed to the event loop, one call a step, so that no lock is shared with it.
"""

from __future__ import annotations

import asyncio
import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from typing import Any

from dsv4_engine.errors import EngineError
from dsv4_engine.server.commands import CommandChannel, RankEngine, SoloChannel
from dsv4_engine.server.engine_api import NoObserver, ServedEngine, Stats, StepObserver
from dsv4_engine.server.errors import ApiError, engine_failed, shutting_down
from dsv4_engine.server.generation import Generation
from dsv4_engine.server.inbox import Item, Ticket, Turn, Update

_OBSERVER_POLL_S = 0.05
_JOIN_S = 30.0
_LOOK_S = 0.5
_log = logging.getLogger(__name__)


class EngineThread:
    """Runs an engine from `start` to `close`. `submit`, `withdraw` and `close` belong to the event loop's thread.

    make_engine is called on the engine's thread. max_outstanding: outputs that may run or wait at a time. on_message:
    hears, on this thread, what is sent to all ranks with `tell_ranks`.
    """

    def __init__(
        self,
        make_engine: Callable[[], ServedEngine],
        *,
        max_outstanding: int,
        channel: CommandChannel | None = None,
        observer: StepObserver | None = None,
        on_message: Callable[[bytes], None] = lambda message: None,
    ) -> None:
        self._make_engine = make_engine
        self._max_outstanding = max_outstanding
        self._channel = channel or SoloChannel()
        self._observer = observer or NoObserver()
        self._on_message = on_message
        self._inbox: queue.SimpleQueue[Item] = queue.SimpleQueue()
        self._outstanding: set[Ticket] = set()
        self._running: dict[int, Ticket] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._started: Future[None] = Future()
        self._closing = False
        self._hurry = False
        self._observer_waits = False
        self._now = Turn({})
        self.failure: str | None = None
        self._thread = threading.Thread(target=self._run, name="dsv4-engine", daemon=True)

    @property
    def outstanding(self) -> int:
        """Outputs that run or wait."""
        return len(self._outstanding)

    def start(self, check: Callable[[], None] = lambda: None) -> None:
        """Load the engine, before there is an event loop; `check` is called now and then meanwhile.

        Raises what either of them raises.
        """
        self._thread.start()
        while True:
            try:
                return self._started.result(_LOOK_S)
            except FutureTimeoutError:
                if self._started.done():
                    raise
                check()

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Where updates go; once, before the first request."""
        self._loop = loop

    def submit(self, generations: Sequence[Generation]) -> list[Ticket]:
        """A ticket for each output, all or none, with one queue of updates.

        ApiError: 429 when too many wait, 400 when there could never be room, 503 when the engine is gone.
        """
        self.require_serving()
        if len(generations) > self._max_outstanding:
            raise ApiError(
                f"the request asks for {len(generations)} outputs, and {self._max_outstanding} are the most at a time"
            )
        if len(self._outstanding) + len(generations) > self._max_outstanding:
            raise ApiError(
                f"{len(self._outstanding)} outputs run or wait, and {self._max_outstanding} are the most: try again",
                status=429,
                type="rate_limit_error",
                code="queue_full",
                headers={"Retry-After": "1"},
            )
        updates: asyncio.Queue[tuple[Ticket, Update | ApiError]] = asyncio.Queue()
        tickets = [Ticket(generation, updates) for generation in generations]
        for ticket in tickets:
            self._outstanding.add(ticket)
            self._inbox.put(Item(add=ticket))
        return tickets

    def withdraw(self, ticket: Ticket) -> None:
        """Nobody wants the rest of this output. Idempotent; nothing more comes of it."""
        if ticket in self._outstanding:
            self._outstanding.discard(ticket)
            self._inbox.put(Item(withdraw=ticket))

    async def stats(self) -> Stats:
        """Answered between two steps. ApiError when the engine is gone."""
        reply: Future[Stats] = Future()
        return await self._asked(reply, Item(stats=reply))

    async def flush_cache(self) -> bool:
        """False while requests run."""
        reply: Future[bool] = Future()
        return await self._asked(reply, Item(flush=reply))

    def tell_ranks(self, message: bytes) -> None:
        """To `on_message` of every rank, before its next step."""
        self.require_serving()
        self._inbox.put(Item(message=message))

    def wake(self) -> None:
        """Have an idle thread call its observer. From any thread."""
        self._inbox.put(Item())

    def fail(self, reason: str) -> None:
        """Somebody else knows that the engine is lost, such as whoever watches the other ranks. From any thread.

        All that run or wait hear of it at once, also where the engine's own thread waits for a rank that has gone.
        """
        if self.failure is None and not self._closing:
            self._tell_failure(reason)
            self.wake()

    async def close(self, *, grace_s: float) -> None:
        """Take no more requests, let those that run finish within `grace_s`, and end the thread. Idempotent."""
        self._closing = True
        deadline = time.monotonic() + grace_s
        while self._outstanding and self.failure is None and time.monotonic() < deadline and not self._hurry:
            await asyncio.sleep(0.02)
        for ticket in list(self._outstanding):
            ticket.tell(shutting_down())
            self.withdraw(ticket)
        self._inbox.put(Item(stop=True))
        await asyncio.to_thread(self._thread.join, _JOIN_S)

    def hurry(self) -> None:
        """Let `close` wait no longer for requests that run."""
        self._hurry = True

    def require_serving(self) -> None:
        """ApiError (503) when the engine has failed, or the server is ending."""
        if self.failure is not None:
            raise engine_failed(self.failure, status=503)
        if self._closing:
            raise shutting_down()

    async def _asked(self, reply: Future[Any], item: Item) -> Any:
        self.require_serving()
        self._inbox.put(item)
        return await asyncio.wrap_future(reply)

    def _run(self) -> None:
        try:
            rank = RankEngine(self._make_engine())
        except BaseException as error:  # noqa: BLE001 - whoever started this thread gets it
            self._started.set_exception(error)
            return
        self._started.set_result(None)
        try:
            while self._turn(rank):
                pass
        except Exception as error:  # noqa: BLE001 - every client has to hear of it, and the server goes on answering
            self._fail(error)
        self._observer.end()

    def _turn(self, rank: RankEngine) -> bool:
        """Obey what has come, make one step; False after the last one."""
        turn = self._now = self._take(idle=not rank.has_work)
        commands = turn.commands()
        self._channel.send(commands)
        for message in commands.messages:
            self._on_message(message)
        added, flushed = rank.obey(commands)
        out: list[tuple[Ticket, Update | ApiError]] = []
        for ticket, outcome in zip(turn.adds, added, strict=True):
            if isinstance(outcome, EngineError):
                out.append((ticket, ApiError(f"{outcome.message}{f' ({outcome.hint})' if outcome.hint else ''}")))
            else:
                ticket.request_id = outcome
                self._running[outcome] = ticket
        turn.answer(flushed, rank.stats)
        if turn.stop:
            self._deliver(out)
            return False
        if rank.has_work:
            out += self._step(rank)
            self._observer.after_step()
            # It is asked once more before this thread goes idle.
            self._observer_waits = True
        else:
            self._observer_waits = self._observer.poll()
        self._deliver(out)
        return True

    def _take(self, *, idle: bool) -> Turn:
        """All that has come; an idle thread waits for the first of it."""
        turn = Turn(self._running)
        if idle:
            wait = _OBSERVER_POLL_S if self._observer_waits else self._channel.heartbeat_s
            with suppress(queue.Empty):
                turn.take(self._inbox.get(timeout=wait))
        with suppress(queue.Empty):
            while True:
                turn.take(self._inbox.get_nowait())
        return turn

    def _step(self, rank: RankEngine) -> list[tuple[Ticket, Update | ApiError]]:
        made = rank.step()
        out: list[tuple[Ticket, Update | ApiError]] = []
        for request_id in dict.fromkeys((*made.step.new_tokens, *made.results)):
            ticket = self._running.get(request_id)
            if ticket is None:
                continue
            result = made.results.get(request_id)
            if ticket.cached_tokens is None:
                ticket.cached_tokens = rank.cached_tokens(request_id) if result is None else result.cached_tokens
            if result is not None:
                del self._running[request_id]
            update = Update(
                tokens=tuple(made.step.new_tokens.get(request_id, ())),
                logprobs=tuple(made.step.logprobs.get(request_id, ())),
                finish=None if result is None else result.finish_reason,
                cached_tokens=ticket.cached_tokens,
            )
            if update.tokens or update.finish is not None:
                out.append((ticket, update))
        return out

    def _deliver(self, out: list[tuple[Ticket, Update | ApiError]]) -> None:
        if out and self._loop is not None:
            # A loop that is closed has nobody left who could read it.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._hand_over, out)

    def _hand_over(self, out: list[tuple[Ticket, Update | ApiError]]) -> None:
        """On the event loop's thread."""
        for ticket, update in out:
            if ticket not in self._outstanding:
                continue
            if isinstance(update, ApiError) or update.finish is not None:
                self._outstanding.discard(ticket)
            ticket.tell(update)

    def _fail(self, error: Exception) -> None:
        """Nothing can be served any more: all that run or wait hear why."""
        _log.error("the engine failed", exc_info=error)
        reason = self.failure or f"{type(error).__name__}: {error}"
        self._tell_failure(reason)
        while not self._now.stop:
            # Questions that were on their way would wait for ever.
            self._now.refuse(engine_failed(reason, status=503))
            self._now = Turn({})
            self._now.take(self._inbox.get())

    def _tell_failure(self, reason: str) -> None:
        self.failure = reason
        with suppress(RuntimeError):
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._fail_all, reason)

    def _fail_all(self, reason: str) -> None:
        for ticket in list(self._outstanding):
            self._outstanding.discard(ticket)
            ticket.tell(engine_failed(reason))
