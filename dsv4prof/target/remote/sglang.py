"""SGLang's profiler over HTTP: start it, and never leave it recording or armed.

As 0.5.23 behaves (tried): a refusal is HTTP 500 without a reason; `/stop_profile` answers when the traces are saved,
and 500 when nothing is being recorded, armed or not; with several data-parallel ranks only the first reply counts.
"""

from __future__ import annotations

from typing import Any

from dsv4prof.errors import LifetimeError, UsageError
from dsv4prof.target.remote.client import Answer, Client, NoAnswerError
from dsv4prof.target.remote.facts import refuse_without_key

_START_TIMEOUT = 30.0
# No server comes so far: starting there is how an armed profiler is told to start never.
_NEVER = 1 << 62


class SglangProfiler:
    """One server's profiler. `staged_only`: its manager knows neither stop nor disarm, and ends by itself.

    `replies` is how many of its ranks answer a request: of several only the first is heard, so that nobody knows
    whether all have stopped.
    """

    def __init__(self, client: Client, *, staged_only: bool = False, replies: int = 2) -> None:
        self._client = client
        self._replies = replies
        self.staged_only = staged_only

    def start(self, body: dict[str, Any]) -> None:
        """Arm it. Raises LifetimeError when the server is profiling already, UsageError when it cannot at all."""
        try:
            answer = self._client.post("/start_profile", body, timeout=_START_TIMEOUT)
        except (NoAnswerError, KeyboardInterrupt):
            # Nobody knows whether it took the request.
            self.end(timeout=_START_TIMEOUT)
            raise
        if answer.ok:
            return
        refuse_start(answer, self._client.url)
        # Of several ranks one may have refused and another taken it.
        self._disarm(_START_TIMEOUT)
        raise LifetimeError(
            f"{self._client.url} refused to start profiling (HTTP {answer.status}): it is most likely doing so already",
            hint=f"its log has the reason; curl -X POST {self._client.url}/stop_profile ends what is running",
        )

    def end(self, *, timeout: float) -> bool:
        """Stop what records and disarm what has not begun; whether the server said that it stopped and saved.

        Never raises for a server that has stopped by itself, hangs or is gone: what was saved is collected anyway.
        """
        if self.staged_only:
            return False
        try:
            stopped = self._client.post("/stop_profile", timeout=timeout).ok
            if stopped and self._replies == 1:
                return True
            if not self._disarm(timeout):
                # A rank whose refusal was not the first to arrive may still record.
                stopped = self._client.post("/stop_profile", timeout=timeout).ok or stopped
        except NoAnswerError:
            return False
        return stopped

    def _disarm(self, timeout: float) -> bool:
        if self.staged_only:
            return True
        body = {"start_step": _NEVER, "activities": ["CPU"], "profile_id": "dsv4prof-never"}
        return self._client.post("/start_profile", body, timeout=timeout).ok


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
