"""SGLang's profiler over HTTP: start it, and never leave it recording or armed.

As 0.5.23 behaves (tried): a refusal is HTTP 500 without a reason; `/stop_profile` answers when the traces are saved,
and 500 when nothing is being recorded, armed or not; with several data-parallel ranks only the first reply counts.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from dsv4prof.errors import LifetimeError, UsageError
from dsv4prof.model.phase import Phase
from dsv4prof.target.remote.client import Answer, Client, NoAnswerError
from dsv4prof.target.remote.facts import refuse_without_key
from dsv4prof.target.remote.stopping import Stop

_START_TIMEOUT = 30.0
# No server comes so far: starting there is how an armed profiler is told to start never.
_NEVER = 1 << 62


class SglangProfiler:
    """One server's profiler. `staged_only`: its manager knows neither stop nor disarm, and ends by itself.

    `replies` is how many of its ranks answer a request: of several only the first is heard, so that nobody knows
    whether all have stopped (`everyone`). `idle`: it certainly does not record for us, nor will. Of
    `stages` the default manager records both, whichever was asked for: so it `lingers` when the one is complete.
    """

    def __init__(
        self, client: Client, *, staged_only: bool = False, replies: int = 2, stages: Sequence[Phase] = ()
    ) -> None:
        self._client = client
        self._by_stage = bool(stages)
        self.lingers = len(stages) == 1 and not staged_only
        self.staged_only = staged_only
        self.everyone = replies == 1 and not staged_only
        self.idle = True

    def start(self, body: dict[str, Any]) -> None:
        """Arm it. Raises LifetimeError when the server is profiling already, UsageError when it cannot at all."""
        self.idle = False
        try:
            answer = self._client.post("/start_profile", body, timeout=_START_TIMEOUT)
        except NoAnswerError:
            # Nobody knows whether it took the request.
            stop = self.end(timeout=_START_TIMEOUT)
            self.idle = stop is Stop.GONE or (self.everyone and stop is not Stop.UNANSWERED)
            raise
        if answer.ok:
            return
        # Of several ranks one may have refused and another taken it.
        self.idle = self.everyone or answer.status < 500
        refuse_start(answer, self._client.url)
        self._disarm(_START_TIMEOUT)
        raise LifetimeError(
            f"{self._client.url} refused to start profiling (HTTP {answer.status}): it is most likely doing so already",
            hint=f"its log has the reason; curl -X POST {self._client.url}/stop_profile ends what is running",
        )

    def end(self, *, timeout: float) -> Stop:
        """Stop what records and disarm what has not begun; what is known of it then.

        Never raises for a server that has stopped by itself, hangs or is gone: what was saved is collected anyway.
        """
        if self.staged_only:
            return Stop.NOTHING
        deadline = time.monotonic() + timeout
        try:
            stopped = self._stop(deadline)
            # By stage a stop ends one window, and the next stage would open another.
            if stopped and self.everyone and not self._by_stage:
                return Stop.SAVED
            if not self._disarm(_left(deadline)):
                # A rank whose refusal was not the first to arrive may still record.
                stopped = self._stop(deadline) or stopped
        except NoAnswerError as error:
            return Stop.UNANSWERED if error.slow else Stop.GONE
        return Stop.SAVED if stopped else Stop.NOTHING

    def _stop(self, deadline: float) -> bool:
        return self._client.post("/stop_profile", timeout=_left(deadline)).ok

    def _disarm(self, timeout: float) -> bool:
        if self.staged_only:
            return True
        body = {"start_step": _NEVER, "activities": ["CPU"], "profile_id": "dsv4prof-never"}
        return self._client.post("/start_profile", body, timeout=timeout).ok


def _left(deadline: float) -> float:
    return max(1.0, deadline - time.monotonic())


def refuse_start(answer: Answer, url: str) -> None:
    """Raises UsageError for the refusals of `/start_profile` that are the same on every server."""
    refuse_without_key(answer, url)
    if answer.status in (404, 405):
        raise UsageError(
            f"{url} has no /start_profile: profiling is not switched on, or it is no serving engine",
            hint="""vLLM: --profiler-config '{"profiler": "torch", "torch_profiler_dir": "DIR"}'""",
        )
    if answer.status in (400, 422):
        raise UsageError(
            f"{url} does not understand the request (HTTP {answer.status}): {answer.text}",
            hint="its version may know other fields; docs/attach.md lists what is sent",
        )
