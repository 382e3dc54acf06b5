"""Two measurements side by side, and one beside the catalogue: where calls wait that did not, or wait no longer."""

from __future__ import annotations

import re

import msgspec

from dsv4prof.sync import catalogue
from dsv4prof.sync.catalogue import Form
from dsv4prof.sync.measured import Measurement, Meta, Truth


class Change(msgspec.Struct, frozen=True):
    """A case whose verdict differs. `forms` are those of the catalogue that rest on it.

    `explained`: the catalogue knows of it, by the torch versions or the vendor that a form names.
    """

    id: str
    call: str
    before: bool
    after: bool
    forms: tuple[str, ...] = ()
    explained: bool = False


class Drift(msgspec.Struct, frozen=True):
    """What differs from the older file to the newer. `warned` are cases that wait in both and warn in one alone."""

    agreeing: int
    changed: list[Change]
    warned: list[str]
    new: list[str]
    gone: list[str]


class Contradiction(msgspec.Struct, frozen=True):
    """A case that does another thing than the form that rests on it says for this torch and vendor."""

    form: str
    case: str
    expected: bool
    measured: bool


def compare(old: Truth, new: Truth) -> Drift:
    """Cases that failed on either side are in no list: they say nothing."""
    before, after = _answered(old), _answered(new)
    both = [id for id in after if id in before]
    changed = [id for id in both if before[id].syncs != after[id].syncs]
    forms = _forms_of_cases()
    return Drift(
        agreeing=len(both) - len(changed),
        changed=[_change(before[id], after[id], forms.get(id, ()), new.meta) for id in changed],
        warned=[
            id
            for id in both
            if before[id].syncs and after[id].syncs and bool(before[id].warned) != bool(after[id].warned)
        ],
        new=[row.id for row in new.rows if row.id not in old.by_id()],
        gone=[row.id for row in old.rows if row.id not in new.by_id()],
    )


def contradictions(truth: Truth) -> list[Contradiction]:
    """Where a measurement and the catalogue disagree."""
    rows = _answered(truth)
    found = []
    for form in catalogue.forms():
        wanted = expected(form, truth.meta)
        for case in form.measured:
            row = rows.get(case)
            if row is not None and wanted is not None and row.syncs != wanted:
                found.append(Contradiction(form.id, case, wanted, not wanted))
    return found


def expected(form: Form, meta: Meta) -> bool | None:
    """Whether a form waits on this torch and vendor; None where the catalogue does not say (another vendor)."""
    if meta.vendor not in form.vendors:
        return None
    version = version_of(meta.torch)
    early = form.since is not None and version < version_of(form.since)
    late = form.until is not None and version > version_of(form.until)
    return form.syncs and not early and not late


def version_of(text: str) -> tuple[int, ...]:
    """`2.11.0+cu130` -> (2, 11). A nightly of 2.14 counts as 2.14."""
    return tuple(int(number) for number in re.findall(r"\d+", text)[:2])


def _answered(truth: Truth) -> dict[str, Measurement]:
    return {row.id: row for row in truth.rows if row.syncs is not None}


def _forms_of_cases() -> dict[str, tuple[Form, ...]]:
    found: dict[str, tuple[Form, ...]] = {}
    for form in catalogue.forms():
        for case in form.measured:
            found[case] = (*found.get(case, ()), form)
    return found


def _change(old: Measurement, new: Measurement, forms: tuple[Form, ...], meta: Meta) -> Change:
    assert old.syncs is not None
    assert new.syncs is not None
    explained = bool(forms) and all(expected(form, meta) == new.syncs for form in forms)
    return Change(new.id, new.call, old.syncs, new.syncs, tuple(form.id for form in forms), explained)
