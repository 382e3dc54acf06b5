"""How far verdicts agree with measurements, for the union of layers and for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from dsv4prof.sync.runtime.judging.verdicts import Verdict


class Agreement(msgspec.Struct, frozen=True, kw_only=True):
    """`agreement` is a share from 0 to 1, None where nothing was measured. `missed` wait and were not seen to;
    `false` were said to wait and do not."""

    compared: int
    agreement: float | None
    missed: tuple[str, ...]
    false: tuple[str, ...]


def agreement(said: Mapping[str, bool], measured: Mapping[str, bool]) -> Agreement:
    """Only cases in both count."""
    both = [id for id in said if id in measured]
    missed = tuple(id for id in both if measured[id] and not said[id])
    false = tuple(id for id in both if said[id] and not measured[id])
    share = 1 - (len(missed) + len(false)) / len(both) if both else None
    return Agreement(compared=len(both), agreement=share, missed=missed, false=false)


def by_layer(verdicts: Sequence[Verdict], measured: Mapping[str, bool]) -> dict[str, Agreement]:
    """One for each layer that any verdict names, in that order."""
    names = dict.fromkeys(name for one in verdicts for name in one.layers)
    return {name: agreement({one.id: one.layers.get(name, False) for one in verdicts}, measured) for name in names}


def of_union(verdicts: Sequence[Verdict], measured: Mapping[str, bool]) -> Agreement:
    """A case waits for the union where any layer says so."""
    return agreement({one.id: one.syncs for one in verdicts}, measured)
