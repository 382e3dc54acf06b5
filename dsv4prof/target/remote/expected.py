"""Which ranks a SGLang server has, what each one's file is called, and which rank that is.

With data parallelism every replica has a whole tensor-parallel group of its own, and its file says "rank 0 of 1"; with
DP attention the replicas share one group, and the TP number alone tells the rank. Names as SGLang 0.5.23 writes them:
`ID-TP-0[-DP-1][-PP-0][-EP-3][-DECODE].trace.json.gz`, a part only where its size is above 1.
"""

from __future__ import annotations

import re

import msgspec

from dsv4prof.model.phase import Phase
from dsv4prof.model.session import RankCoordinates
from dsv4prof.target.remote.facts import ServerFacts

SUFFIX = ".trace.json.gz"
_NAME = re.compile(r"-TP-(\d+)(?:-DP-(\d+))?(?:-PP-(\d+))?(?:-EP-(\d+))?(?:-([A-Za-z_]+\w*))?\.trace\.json\.gz")
# The old profiler manager names the scheduler's mode, the new one (SGLANG_PROFILE_V2) the stage.
_STAGES = {"EXTEND": Phase.PREFILL, "PREFILL": Phase.PREFILL, "DECODE": Phase.DECODE}


class NamedFile(msgspec.Struct, frozen=True):
    """What a file's name says: whose it is, and the window, empty when it is no stage's."""

    coordinates: RankCoordinates
    window: str


def expected_ranks(facts: ServerFacts) -> list[RankCoordinates]:
    """Every rank that records, in order."""
    replicas = 1 if facts.dp_attention else facts.dp
    return [
        _coordinates(facts, tp=tp, dp=dp if replicas > 1 else None, pp=pp)
        for dp in range(replicas)
        for pp in range(facts.pp)
        for tp in range(facts.tp)
    ]


def read_name(name: str, profile_id: str, facts: ServerFacts) -> NamedFile | None:
    """What a file's name says of it; None when it is not of this recording, or of a rank that cannot be."""
    match = _NAME.fullmatch(name[len(profile_id) :]) if name.startswith(profile_id) else None
    if match is None:
        return None
    tp, dp, pp, ep = (None if text is None else int(text) for text in match.groups()[:4])
    if (tp or 0) >= facts.tp or (dp or 0) >= facts.dp or (pp or 0) >= facts.pp:
        return None
    stage = _STAGES.get((match[5] or "").upper())
    window = stage.value if stage is not None else (match[5] or "").lower()
    return NamedFile(_coordinates(facts, tp=tp or 0, dp=dp, pp=pp or 0, ep=ep), window)


def _coordinates(
    facts: ServerFacts, *, tp: int, dp: int | None = None, pp: int = 0, ep: int | None = None
) -> RankCoordinates:
    replica = 0 if facts.dp_attention else dp or 0
    replicas = 1 if facts.dp_attention else facts.dp
    return RankCoordinates(
        rank=(replica * facts.pp + pp) * facts.tp + tp,
        world_size=replicas * facts.pp * facts.tp,
        tp=tp,
        dp=dp,
        pp=pp if facts.pp > 1 else None,
        ep=ep,
        sizes=facts.sizes,
    )
