"""Who this process is among the ranks of its launch, and what its traces say of it."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from pathlib import Path

from dsv4prof.errors import UsageError
from dsv4prof.model.session import RankCoordinates


def coordinates_from(environment: Mapping[str, str]) -> RankCoordinates:
    """Who this process is, by torchrun's variables; rank 0 of 1 without them. Raises UsageError for what is no
    number.
    """
    try:
        rank, world = int(environment.get("RANK", "0")), int(environment.get("WORLD_SIZE", "1"))
    except ValueError as error:
        raise UsageError("RANK and WORLD_SIZE have to be whole numbers", hint="start with torchrun") from error
    if not 0 <= rank < world:
        raise UsageError(f"RANK={rank} does not fit WORLD_SIZE={world}", hint="start with torchrun")
    local = environment.get("LOCAL_RANK", "")
    return RankCoordinates(
        rank=rank,
        world_size=world,
        host=socket.gethostname(),
        local_rank=int(local) if local.isdecimal() else None,
    )


def trace_metadata(me: RankCoordinates, folder: Path) -> dict[str, object]:
    """What a trace file says of itself, so that it can be told apart when it has been copied elsewhere."""
    return {"session": folder.name, "rank": me.rank, "world_size": me.world_size, "host": me.host}
