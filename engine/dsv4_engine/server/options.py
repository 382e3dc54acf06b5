"""What a user chooses about the server, checked before anything is loaded."""

from __future__ import annotations

from dataclasses import dataclass

from dsv4_engine.errors import EngineError

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """host, port: where to listen; port 0 picks a free one. api_key: what clients have to send as a Bearer token.

    model_name: by which clients call the model; None takes the folder's. max_queue: outputs that may wait beyond those
    that run, before clients are told to come again. max_body_mb: of a request, MiB. grace_s: how long an ending server
    lets requests finish. Raises EngineError on a value out of range.
    """

    host: str = LOOPBACK
    port: int = 0
    api_key: str | None = None
    model_name: str | None = None
    max_queue: int = 256
    max_body_mb: int = 16
    grace_s: float = 5.0

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise EngineError(f"port {self.port} is not between 0 and 65535", hint="0 picks a free port")
        for name, low in (("max_queue", 0), ("max_body_mb", 1), ("grace_s", 0)):
            if not getattr(self, name) >= low:
                raise EngineError(f"{name} is {getattr(self, name)}", hint=f"choose at least {low}")
        if self.model_name is not None and not (self.model_name and self.model_name.isprintable()):
            raise EngineError(f"the model's name {self.model_name!a} is empty, or has a character that no name has")
        if self.api_key is not None and not (self.api_key and self.api_key.isascii() and self.api_key.isprintable()):
            raise EngineError("the API key is empty, or has a character that HTTP cannot send")
        if self.api_key is not None and self.api_key != self.api_key.strip():
            raise EngineError("the API key begins or ends with a space, which HTTP leaves out")

    @property
    def max_body_bytes(self) -> int:
        return self.max_body_mb << 20
