"""Whoever carries a log puts words before its lines: colours, a rank, a process. Take them off, and read them."""

from __future__ import annotations

import json
import re

_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07]*\x07")
# What torch, torchrun, mpirun, ray and vLLM put before a line.
_CARRIER = re.compile(
    r"^\s*(?:\[(?:rank|default)\s*\d+\]:?\s*|\[\d+(?:,\d+)?\](?:<std\w+>)?:\s*|\((?=[^()]*\b(?:pid|rank)=)[^()]*\)\s*)+"
)
_PID = re.compile(r"\bpid[=:' ]+(\d+)|^\w{3} [ \d]\d [\d:]{8} \S+ [\w./:-]+\[(\d+)\]: ", re.IGNORECASE)
_RANKS = tuple(
    re.compile(pattern, re.ASCII)
    for pattern in (
        r"\[rank\s*(\d+)\]",
        r"^\[default(\d+)\]:",
        r"^\[\d+,(\d+)\]<std",
        r"^\[(\d{1,5})\]:",
        r"^\s*(\d{1,5}): ",
        r"\bRank (\d+)\]",
        r"\brank *[=:]? *(\d+)\b",
    )
)
_GROUPS = (
    re.compile(r"(?:\bDP(?P<dp>\d+) )?(?:\bPP(?P<pp>\d+) )?\bTP(?P<tp>\d+)[ \]]", re.ASCII),
    re.compile(r"Worker(?:_DP(?P<dp>\d+))?(?:_PP(?P<pp>\d+))?_TP(?P<tp>\d+)", re.ASCII),
)


def plain(line: str) -> str:
    """The line without colours, and out of the JSON in which container engines keep it."""
    clean = _COLOUR.sub("", line).rstrip() if "\x1b" in line else line.rstrip()
    if clean.startswith("{") and '"log"' in clean:
        try:
            inner = json.loads(clean).get("log")
        except ValueError:
            return clean
        return _COLOUR.sub("", inner).rstrip() if isinstance(inner, str) else clean
    return clean


def bare(line: str) -> str:
    """A plain line without what the launcher put before it."""
    return _CARRIER.sub("", line)


def rank_of(line: str) -> int | None:
    """The rank that a plain line is of, None where it does not say so."""
    match = next((found for pattern in _RANKS if (found := pattern.search(line)) is not None), None)
    if match is not None:
        return int(match[1])
    match = next((found for pattern in _GROUPS if (found := pattern.search(line)) is not None), None)
    return _rank_in_groups(match) if match is not None else None


def pid_of(line: str) -> int | None:
    """The process that a plain line names."""
    match = _PID.search(line)
    return int(match[1] or match[2]) if match is not None else None


def _rank_in_groups(match: re.Match[str]) -> int | None:
    """A rank of tensor parallelism is the rank of all only where nothing else divides them: pipeline stages do, and so
    do replicas. A replica's number above the rank tells the two meanings of DP apart: with attention in parallel it
    cannot be.
    """
    replica, stage, rank = (int(match[name] or 0) for name in ("dp", "pp", "tp"))
    return None if stage or replica > rank else rank
