"""Log probabilities as the two endpoints tell them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dsv4_engine.server.output import OutputToken
from dsv4_engine.tokenizer import Tokenizer

# JSON has no infinity; OpenAI's floor for a token that cannot be.
_FLOOR = -9999.0


def token_text(tokenizer: Tokenizer, token: int) -> str:
    """A token by itself; as `bytes:\\xe4\\xbd` where it is only a part of a character."""
    data = tokenizer.token_bytes(token)
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in data)


def completion_logprobs(tokenizer: Tokenizer, tokens: Sequence[OutputToken]) -> dict[str, Any]:
    """The lists of `/v1/completions`, one entry a token; the chosen one is among the top ones, whatever its rank."""
    told = [(each, each.logprobs) for each in tokens if each.logprobs is not None]
    return {
        "tokens": [token_text(tokenizer, each.token) for each, _ in told],
        "token_logprobs": [_finite(logprobs.logprob) for _, logprobs in told],
        "top_logprobs": [
            {
                token_text(tokenizer, token): _finite(value)
                for token, value in ((each.token, logprobs.logprob), *logprobs.top)
            }
            for each, logprobs in told
        ],
        "text_offset": [each.offset for each, _ in told],
    }


def chat_logprobs(tokenizer: Tokenizer, tokens: Sequence[OutputToken]) -> dict[str, Any]:
    """The object of `/v1/chat/completions`; of reasoning and calls the tokens are in `content` as well."""
    return {
        "content": [
            {
                **_told(tokenizer, each.token, each.logprobs.logprob),
                "top_logprobs": [_told(tokenizer, token, value) for token, value in each.logprobs.top],
            }
            for each in tokens
            if each.logprobs is not None
        ],
        "refusal": None,
    }


def _told(tokenizer: Tokenizer, token: int, value: float) -> dict[str, Any]:
    return {
        "token": token_text(tokenizer, token),
        "logprob": _finite(value),
        "bytes": list(tokenizer.token_bytes(token)),
    }


def _finite(value: float) -> float:
    return max(value, _FLOOR)
