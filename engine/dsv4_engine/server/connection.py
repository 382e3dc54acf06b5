"""A client's connection, which is closed when a request's head does not come: uvicorn alone waits for ever."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_S = 30.0


class Connection(H11Protocol):
    """h11's, whatever else is installed: it also bounds the head's size.

    The time runs from the connection's beginning, and from the first byte after an answer, until the head is complete.
    Between an answer and that byte the keep-alive's does; a body that does not come is its reader's affair.
    """

    _awaited: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._await_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        super().connection_lost(exc)

    def _await_head(self) -> None:
        if self.conn.their_state is not h11.IDLE:
            self._forget()
        elif self._awaited is None:
            self._awaited = self.loop.call_later(HEAD_S, self.transport.close)

    def _forget(self) -> None:
        if self._awaited is not None:
            self._awaited.cancel()
            self._awaited = None
