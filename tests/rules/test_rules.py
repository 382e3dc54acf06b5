"""Every rule explains itself, and every code that the code emits has a rule."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import dsv4prof
from dsv4prof import rules
from dsv4prof.errors import UsageError
from dsv4prof.sync import catalogue

PACKAGE = Path(dsv4prof.__file__).parent


@pytest.mark.parametrize("rule", rules.all(), ids=lambda rule: rule.code)
def test_a_rule_is_complete(rule: rules.Rule) -> None:
    assert re.fullmatch(r"DSV[0-7]\d\d", rule.code)
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", rule.name)
    assert not rule.summary.endswith(".")
    assert "\n" not in rule.summary
    assert len(rule.doc) > 60
    assert rules.get(rule.code.lower()) is rule


def test_codes_and_names_are_unique_and_sorted() -> None:
    found = rules.all()
    assert [rule.code for rule in found] == sorted({rule.code for rule in found})
    assert len({rule.name for rule in found}) == len(found)


def test_every_code_in_the_source_has_a_rule() -> None:
    known = {rule.code for rule in rules.all()}
    used = {code for path in PACKAGE.rglob("*.py") for code in re.findall(r'"(DSV\d{3})"', path.read_text())}
    assert used == known


def test_every_reading_of_the_catalogue_has_a_rule_of_the_syncs() -> None:
    ops = (*catalogue.OWN_READS, catalogue.SCALAR_READ)
    named = [catalogue.reading_of([op]) for op in ops]
    others = [value for value in vars(catalogue).values() if isinstance(value, catalogue.Reading)]
    for reading in (*named, *others, *catalogue.SYNCHRONIZE.values()):
        assert reading is not None
        assert rules.get(reading.code).code.startswith("DSV1")
        assert reading.fix
    assert len(others) >= 5


def test_an_unknown_code_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError) as caught:
        rules.get("DSV999")
    assert "DSV105" in (caught.value.hint or "")
