"""What lies in the engine thread's inbox, and what a request's ticket brings back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from dsv4_engine.request import FinishReason, TokenLogprobs
from dsv4_engine.server.commands import Commands
from dsv4_engine.server.engine_api import Stats
from dsv4_engine.server.errors import ApiError
from dsv4_engine.server.generation import Generation


@dataclass(frozen=True, kw_only=True)
class Update:
    """New tokens of one output; with the last ones `finish`. cached_tokens: of the prompt, told with every update."""

    tokens: Sequence[int] = ()
    logprobs: Sequence[TokenLogprobs] = ()
    finish: FinishReason | None = None
    cached_tokens: int = 0


@dataclass(eq=False)
class Ticket:
    """One output that was asked for. updates: what came of it, and of others asked for with it; an error is the last.

    Only the event loop touches `updates`, only the engine's thread the rest.
    """

    generation: Generation
    updates: asyncio.Queue[tuple[Ticket, Update | ApiError]]
    request_id: int | None = None
    cached_tokens: int | None = None
    withdrawn: bool = False

    def tell(self, update: Update | ApiError) -> None:
        """On the event loop's thread."""
        self.updates.put_nowait((self, update))


@dataclass(frozen=True, kw_only=True)
class Item:
    """Something for the thread. With neither ticket, reply nor message it only wakes it."""

    add: Ticket | None = None
    withdraw: Ticket | None = None
    flush: Future[bool] | None = None
    stats: Future[Stats] | None = None
    message: bytes | None = None
    stop: bool = False


class Turn:
    """What the inbox held before one step. running: tickets by the engine's request id; those withdrawn leave it."""

    def __init__(self, running: dict[int, Ticket]) -> None:
        self._running = running
        self._adds: list[Ticket] = []
        self._aborts: list[int] = []
        self._flushes: list[Future[bool]] = []
        self._asks: list[Future[Stats]] = []
        self._messages: list[bytes] = []
        self.stop = False

    @property
    def adds(self) -> list[Ticket]:
        """Those that nobody has withdrawn meanwhile."""
        return [ticket for ticket in self._adds if not ticket.withdrawn]

    def take(self, item: Item) -> None:
        if item.add is not None:
            self._adds.append(item.add)
        if item.withdraw is not None:
            self._withdraw(item.withdraw)
        if item.flush is not None:
            self._flushes.append(item.flush)
        if item.stats is not None:
            self._asks.append(item.stats)
        if item.message is not None:
            self._messages.append(item.message)
        self.stop = self.stop or item.stop

    def commands(self) -> Commands:
        return Commands(
            aborts=tuple(self._aborts),
            adds=tuple(ticket.generation for ticket in self.adds),
            flush=bool(self._flushes),
            messages=tuple(self._messages),
            stop=self.stop,
        )

    def answer(self, flushed: bool, stats: Callable[[], Stats]) -> None:
        """Those who asked; whoever has gone meanwhile gets nothing."""
        for flush in self._flushes:
            _settle(flush, flushed)
        for asked in self._asks:
            _settle(asked, stats())

    def refuse(self, error: ApiError) -> None:
        replies: list[Future[Any]] = [*self._flushes, *self._asks]
        for reply in replies:
            if not reply.done() and reply.set_running_or_notify_cancel():
                reply.set_exception(error)

    def _withdraw(self, ticket: Ticket) -> None:
        ticket.withdrawn = True
        # One that has finished meanwhile is not the engine's any more.
        if ticket.request_id is not None and self._running.pop(ticket.request_id, None) is not None:
            self._aborts.append(ticket.request_id)


def _settle(reply: Future[Any], value: object) -> None:
    if reply.set_running_or_notify_cancel():
        reply.set_result(value)
