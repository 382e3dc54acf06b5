"""One output, from token ids to what a client may see: whole characters, no stop string, log probabilities in step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from dsv4_engine.request import FinishReason, TokenLogprobs
from dsv4_engine.server.stops import StopMatcher
from dsv4_engine.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class OutputToken:
    """A token whose text a client has got. offset: where that text begins in the output, in characters."""

    token: int
    offset: int
    logprobs: TokenLogprobs | None = None


@dataclass(frozen=True, kw_only=True)
class Delta:
    """What is new. finish_reason: stop or length, with the last delta; abort where the engine withdrew the request.

    matched_stop: the stop string or the id of the stop token that ended it.
    """

    text: str = ""
    tokens: tuple[OutputToken, ...] = ()
    finish_reason: str | None = None
    matched_stop: str | int | None = None


@dataclass
class _Waiting:
    """A token whose text is not all out. end: where it ends; unknown (None) while a character is incomplete."""

    token: int
    start: int
    logprobs: TokenLogprobs | None
    end: int | None = None


@dataclass
class OutputStream:
    """The output of one request. stop_ids: tokens that end it, whose own text is not told (end tokens have none).

    num_tokens counts the tokens up to the end, the one that completed a stop string included: those that a speculative
    step made beyond it are nobody's.
    """

    tokenizer: Tokenizer
    stops: Sequence[str] = ()
    stop_ids: frozenset[int] = frozenset()
    num_tokens: int = 0
    finished: bool = False
    _decoded: int = 0
    _told: int = 0
    _waiting: list[_Waiting] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._stream = self.tokenizer.stream()
        self._matcher = StopMatcher(self.stops)

    def push(
        self, tokens: Sequence[int], *, logprobs: Sequence[TokenLogprobs] = (), finish: FinishReason | None = None
    ) -> Delta:
        """Take in tokens, and with the last ones the engine's finish reason; once finished nothing is new any more."""
        if self.finished:
            return Delta()
        text = ""
        ended_by: int | None = None
        for index, token in enumerate(tokens):
            self.num_tokens += 1
            last = index == len(tokens) - 1
            if last and finish is FinishReason.STOP and token in self.stop_ids:
                ended_by = token
                self._note(token, "", logprobs[index] if logprobs else None)
                break
            piece = self._stream.push(token)
            self._note(token, piece, logprobs[index] if logprobs else None)
            text += self._matcher.push(piece)
            if self._matcher.matched is not None:
                return self._end(text, "stop", self._matcher.matched)
        if finish is None:
            return self._delta(text)
        rest = self._stream.flush()
        self._extend_last(rest)
        text += self._matcher.push(rest)
        if self._matcher.matched is not None:
            return self._end(text, "stop", self._matcher.matched)
        return self._end(text + self._matcher.flush(), finish.value, ended_by)

    def _note(self, token: int, piece: str, logprobs: TokenLogprobs | None) -> None:
        start = self._decoded
        self._decoded += len(piece)
        self._waiting.append(_Waiting(token, start, logprobs))
        if piece or not self._stream_waits(token):
            for waiting in self._waiting:
                waiting.end = self._decoded if waiting.end is None else waiting.end

    def _stream_waits(self, token: int) -> bool:
        """Whether the token's text is still to come: it has bytes and told none."""
        return bool(self.tokenizer.token_bytes(token)) and token not in self.stop_ids

    def _extend_last(self, rest: str) -> None:
        self._decoded += len(rest)
        for waiting in self._waiting:
            waiting.end = self._decoded if waiting.end is None else waiting.end

    def _delta(self, text: str) -> Delta:
        self._told += len(text)
        out = 0
        while out < len(self._waiting) and (end := self._waiting[out].end) is not None and end <= self._told:
            out += 1
        taken, self._waiting = self._waiting[:out], self._waiting[out:]
        return Delta(text=text, tokens=_tokens(taken))

    def _end(self, text: str, reason: str, matched: str | int | None) -> Delta:
        """The last delta. Tokens that begin where the text has ended for a stop string's sake are not told."""
        self.finished = True
        self._told += len(text)
        by_text = isinstance(matched, str)
        taken = [waiting for waiting in self._waiting if not by_text or waiting.start < self._told]
        return Delta(text=text, tokens=_tokens(taken), finish_reason=reason, matched_stop=matched)


def _tokens(taken: Sequence[_Waiting]) -> tuple[OutputToken, ...]:
    return tuple(OutputToken(token=each.token, offset=each.start, logprobs=each.logprobs) for each in taken)
