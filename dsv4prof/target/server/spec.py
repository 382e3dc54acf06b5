"""One server of the embedded engine, as plain values."""

from __future__ import annotations

import msgspec

from dsv4prof.errors import UsageError
from dsv4prof.recorder.plan import RecordPlan
from dsv4prof.target.spec import RunSpec


class ServeSpec(msgspec.Struct, frozen=True, kw_only=True):
    """`engine` says what to serve and on what; what it says of a workload does not matter. `engine.root` is where
    recordings go, `engine.threads` torch's threads of each rank.

    `plan` is what a request to record leaves unsaid. `model_name`: by which clients call the model; None takes the
    folder's. The rest is `dsv4_engine.server.options.ServerOptions`.
    """

    engine: RunSpec = RunSpec(tp=1)
    host: str = "127.0.0.1"
    port: int = 0
    api_key: str | None = None
    model_name: str | None = None
    max_queue: int = 256
    max_body_mb: int = 16
    grace_s: float = 5.0
    plan: RecordPlan = RecordPlan(active=None)

    def __post_init__(self) -> None:
        if self.engine.dp > 1:
            raise UsageError("a server has one replica", hint="leave out dp, and start a server for each replica")
