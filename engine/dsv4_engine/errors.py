"""What a user did wrong, in a sentence, with what to do next; whoever embeds the engine decides how to print it."""

from __future__ import annotations


class EngineError(Exception):
    """A request, option or file that the engine cannot use.

    `message` is one sentence; `hint` says what to do next, or is None where the sentence says it.
    """

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message
