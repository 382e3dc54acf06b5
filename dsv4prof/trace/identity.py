"""Who wrote a trace file: its rank and parallel coordinates, from the file's name and from its metadata.

Serving with one GPU a process often writes "rank 0 of 1" in every file, so a rank in the name wins over the content.
"""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import Any

import msgspec

from dsv4prof.errors import UsageError
from dsv4prof.model.session import RankCoordinates

_HINT_REGEX = "put the rank into a group: --rank-regex 'worker-(\\d+)'"
# More ranks than any job has had; a number above it is damage, and a list of those that are missing would fill memory.
_MAX_RANKS = 1_000_000
_RANK = re.compile(r"(?:^|[^A-Za-z])rank[-_.]?(?P<rank>\d+)(?:[-_]?of[-_]?(?P<world>\d+))?(?!\d)", re.IGNORECASE)
_SGLANG = re.compile(r"-(TP|DP|PP|EP)-(\d+)(?=[-.])")
_VLLM = re.compile(r"(?:^|_)(tp|dp|pp|ep)(\d+)(?=[_.])")


class Naming(msgspec.Struct, frozen=True):
    """How files are named beside the ways that are known: `regex` has a group `rank` or one group, the rank."""

    regex: str | None = None

    @classmethod
    def of(cls, regex: str | None) -> Naming:
        """Raises UsageError when the text is no regular expression with a group."""
        if regex is not None:
            try:
                groups = re.compile(regex).groups
            except re.error as error:
                raise UsageError(f"{regex!r} is no regular expression: {error}", hint=_HINT_REGEX) from error
            if not groups:
                raise UsageError(f"the regular expression {regex!r} has no group", hint=_HINT_REGEX)
        return cls(regex)

    def rank(self, name: str) -> int | None:
        """The rank in a name; None when the regex does not match or is not there."""
        match = re.search(self.regex, name) if self.regex else None
        if match is None:
            return None
        found = match["rank"] if "rank" in match.re.groupindex else next(filter(None, match.groups()), None)
        return int(found) if found and found.isdecimal() else None


KNOWN_NAMES = Naming()


class Identity(msgspec.Struct, frozen=True):
    """Coordinates, or None as `rank` when neither name nor content says; `notes` tell of contradictions."""

    rank: int | None
    world_size: int | None
    groups: dict[str, int]
    notes: tuple[str, ...] = ()


def distributed_info(metadata: dict[str, Any]) -> dict[str, Any]:
    """`distributedInfo` as an object: some writers store it as a JSON string, some leave it out."""
    info = metadata.get("distributedInfo")
    if isinstance(info, str):
        try:
            info = msgspec.json.decode(info)
        except (msgspec.DecodeError, RecursionError):
            return {}
    return info if isinstance(info, dict) else {}


def listed_ranks(metadata: dict[str, Any]) -> set[int]:
    """The ranks that the file's process groups name; a group whose size says that all are its members counts whole."""
    config = distributed_info(metadata).get("pg_config")
    found: set[int] = set()
    for group in config if isinstance(config, list) else []:
        ranks = group.get("ranks") if isinstance(group, dict) else None
        size = group.get("pg_size") if isinstance(group, dict) else None
        if ranks == [] and isinstance(size, int) and 0 < size <= _MAX_RANKS:
            # Nobody is named where everybody is meant.
            found.update(range(size))
        if isinstance(ranks, list):
            found.update(rank for rank in map(_integer, ranks) if rank is not None and rank < _MAX_RANKS)
    return found


def identify(path: str, metadata: dict[str, Any], naming: Naming = KNOWN_NAMES) -> Identity:
    """Rank, world size and group coordinates of a file. The name wins; a contradiction is noted."""
    name = PurePath(path).name
    named, named_world, groups = _from_name(name)
    told_by_user = naming.rank(name)
    named = named if told_by_user is None else told_by_user
    info = distributed_info(metadata)
    told, told_world = _integer(info.get("rank")), _integer(info.get("world_size"))
    notes = [f"its rank {rank} cannot be; it was ignored" for rank in (named, told) if rank and rank >= _MAX_RANKS]
    named, told = (None if rank is not None and rank >= _MAX_RANKS else rank for rank in (named, told))
    rank = told if named is None else named
    world = told_world if told_world and told_world > 1 else named_world
    if world is None and not rank:
        world = told_world
    if named is not None and told is not None and named != told and (told_world or 0) > 1:
        notes.append(f"the file's name says rank {named}, its content rank {told}; the name was believed")
    if world is not None and not (rank or 0) < world <= _MAX_RANKS:
        notes.append(f"its world size {world} cannot be for rank {rank or 0}; it was ignored")
        world = None
    return Identity(rank, world, groups, tuple(notes))


def coordinates(identity: Identity, rank: int, metadata: dict[str, Any]) -> RankCoordinates:
    """The model's form, with host and device names as the file gives them."""
    host = metadata.get("host_name")
    return RankCoordinates(
        rank=rank,
        world_size=identity.world_size,
        tp=identity.groups.get("tp"),
        dp=identity.groups.get("dp"),
        pp=identity.groups.get("pp"),
        ep=identity.groups.get("ep"),
        host=host if isinstance(host, str) else None,
        device=_device_name(metadata),
    )


def _from_name(name: str) -> tuple[int | None, int | None, dict[str, int]]:
    found = _SGLANG.findall(name) or _VLLM.findall(name)
    groups = {key.lower(): int(value) for key, value in found}
    match = _RANK.search(name)
    if match is not None:
        return int(match["rank"]), int(match["world"]) if match["world"] else None, groups
    # Ranks of later pipeline stages need the TP size, which one name does not tell.
    if "tp" in groups and not groups.get("pp"):
        return groups["tp"], None, groups
    return None, None, groups


def _device_name(metadata: dict[str, Any]) -> str | None:
    devices = metadata.get("deviceProperties")
    if not isinstance(devices, list):
        return None
    names = {str(device["name"]) for device in devices if isinstance(device, dict) and device.get("name")}
    return ", ".join(sorted(names)) or None


def _integer(value: object) -> int | None:
    if isinstance(value, str) and value.isascii() and value.isdecimal():
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
