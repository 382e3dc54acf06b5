"""What a client did wrong, in OpenAI's form, which its libraries turn into exceptions of their own."""

from __future__ import annotations

from typing import Any


class ApiError(Exception):
    """A request that gets an HTTP error: `message` is one sentence, `param` the field at fault.

    headers: further ones of the answer, such as Retry-After.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int = 400,
        type: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.status = status
        self.type = type
        self.param = param
        self.code = code
        self.headers = headers or {}

    def body(self) -> dict[str, Any]:
        """The JSON object of the answer."""
        return {"error": {"message": self.message, "type": self.type, "param": self.param, "code": self.code}}


def engine_failed(reason: str, *, status: int = 500) -> ApiError:
    """The engine is gone: 500 for a request that it served, 503 for one that comes later."""
    return ApiError(
        f"the engine failed and serves no more requests: {reason}",
        status=status,
        type="server_error",
        code="engine_failed",
    )


def shutting_down() -> ApiError:
    return ApiError("the server is shutting down", status=503, type="server_error", code="shutting_down")
