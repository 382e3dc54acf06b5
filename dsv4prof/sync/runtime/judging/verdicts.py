"""What a detector says of a case."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from dsv4prof.model.syncs import Kind, Observation

_WORST_FIRST = (Kind.SYNC, Kind.SILENT, Kind.REDUNDANT, Kind.RACE, Kind.CONTRACT, Kind.SUSPECT)


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """`syncs`: the host certainly waits. `layers`: the same by layer. `error`: why the case did not run to its end.

    `kind` is written as `class`: the worst of what was seen, "" for nothing. `reason`, `op`, `form` and `code` are of
    the first call of that class.
    """

    id: str
    syncs: bool
    kind: str = msgspec.field(name="class", default="")
    reason: str = ""
    op: str = ""
    form: str = ""
    code: str = ""
    times: int = 0
    layers: dict[str, bool] = {}
    error: str = ""


def verdict(id: str, layers: Sequence[str], seen: Sequence[Observation], *, error: str = "") -> Verdict:
    """`layers` are all that were on, also those that saw nothing. What was measured to cost nothing is no wait,
    whatever a layer that cannot measure says of it.
    """
    ordered = sorted(seen, key=lambda one: _WORST_FIRST.index(_kind(one)))
    worst = ordered[0] if ordered else None
    waiting = [one for one in seen if one.kind.waits]
    by_layer = {name: any(one.layer == name for one in waiting) for name in layers}
    if worst is None:
        return Verdict(id=id, syncs=False, layers=by_layer, error=error)
    return Verdict(
        id=id,
        syncs=any(map(counts, seen)),
        kind=_kind(worst).value,
        reason=worst.reason,
        op=worst.op,
        form=worst.form,
        code=worst.code,
        times=max((sum(one.times for one in waiting if one.layer == name) for name in layers), default=0),
        layers=by_layer,
        error=error,
    )


def counts(seen: Observation) -> bool:
    """Whether the host waited, as far as this tells."""
    return _kind(seen).waits


def _kind(seen: Observation) -> Kind:
    return Kind.SUSPECT if seen.blocked_ns == 0 and seen.kind.waits else seen.kind
