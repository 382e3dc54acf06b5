"""A small load for a server that has nothing to do: an idle server runs no step, and a profiler would record nothing.

Short greedy requests of token numbers, a few at a time, one after another until it is told to stop. Prompts differ, or
a prefix cache would answer for the prefill.
"""

from __future__ import annotations

import random
import threading
from typing import Any

from dsv4prof.target.remote.client import Client, NoAnswerError
from dsv4prof.target.remote.facts import ServerFacts

_PROMPT_TOKENS = 12
_NEW_TOKENS = 16
# Any vocabulary has these, and they are no special tokens of known tokenizers.
_FIRST_TOKEN, _LAST_TOKEN = 20, 250
_PER_REPLICA = 2
_TIMEOUT = 60.0
_PAUSE_AFTER_REFUSAL = 0.5


class Load:
    """Keeps requests running between `start` and `stop`."""

    def __init__(self, client: Client, facts: ServerFacts) -> None:
        self._client = client
        self._facts = facts
        self._over = threading.Event()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self.served = 0
        self.refusal: str | None = None

    def start(self) -> None:
        # Daemons: a request that hangs must not keep the command from ending.
        self._threads = [
            threading.Thread(target=self._send, args=(number,), name=f"dsv4prof-load-{number}", daemon=True)
            for number in range(_PER_REPLICA * self._facts.dp)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self, *, wait_s: float = 5.0) -> None:
        """No further request; those that run are waited for a little."""
        self._over.set()
        for thread in self._threads:
            thread.join(wait_s)

    def _send(self, seed: int) -> None:
        numbers = random.Random(seed)
        while not self._over.is_set():
            prompt = [numbers.randint(_FIRST_TOKEN, _LAST_TOKEN) for _ in range(_PROMPT_TOKENS)]
            path, body = self._request(prompt)
            try:
                answer = self._client.post(path, body, timeout=_TIMEOUT)
                refusal = None if answer.ok else f"HTTP {answer.status} {answer.text}".strip()
            except NoAnswerError as error:
                refusal = error.message
            with self._lock:
                self.served += refusal is None
                self.refusal = self.refusal or refusal
            if refusal is not None:
                self._over.wait(_PAUSE_AFTER_REFUSAL)

    def _request(self, prompt: list[int]) -> tuple[str, dict[str, Any]]:
        if self._facts.kind in ("sglang", "dsv4prof"):
            sampling = {"max_new_tokens": _NEW_TOKENS, "temperature": 0, "ignore_eos": True}
            return "/generate", {"input_ids": prompt, "sampling_params": sampling}
        return "/v1/completions", {
            "model": self._facts.model,
            "prompt": prompt,
            "max_tokens": _NEW_TOKENS,
            "temperature": 0,
        }
