"""Every rule explains itself, and every code that the code emits has a rule."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import dsv4prof
from dsv4prof import rules
from dsv4prof.errors import UsageError
from dsv4prof.sync import readings

PACKAGE = Path(dsv4prof.__file__).parent


@pytest.mark.parametrize("rule", rules.all(), ids=lambda rule: rule.code)
def test_a_rule_is_complete(rule: rules.Rule) -> None:
    assert re.fullmatch(r"DSV[0-8]\d\d", rule.code)
    assert re.fullmatch(r"[a-z]+(-[a-z]+)*", rule.name)
    assert not rule.summary.endswith(".")
    assert "\n" not in rule.summary
    assert len(rule.doc) > 60
    assert rules.get(rule.code.lower()) is rule


@pytest.mark.parametrize("rule", [r for r in rules.all() if r.code[3] in "12"], ids=lambda rule: rule.code)
def test_a_rule_of_syncs_and_hazards_has_a_file_of_its_own_and_says_everything(rule: rules.Rule) -> None:
    module = PACKAGE / "rules" / f"{rule.code.lower()}.py"
    assert rule.code in (ast.get_docstring(ast.parse(module.read_text())) or "")
    for text in (rule.source, rule.run, rule.trace, rule.bad, rule.good, rule.fix, rule.unsafe):
        assert text
    assert rule.bad != rule.good
    if rule.code != "DSV205":
        ast.parse(rule.bad)
        ast.parse(rule.good)


def test_codes_and_names_are_unique_and_sorted() -> None:
    found = rules.all()
    assert [rule.code for rule in found] == sorted({rule.code for rule in found})
    assert len({rule.name for rule in found}) == len(found)


def test_every_code_in_the_source_has_a_rule() -> None:
    known = {rule.code for rule in rules.all()}
    used = {code for path in PACKAGE.rglob("*.py") for code in re.findall(r'"(DSV\d{3})"', path.read_text())}
    assert used == known


def test_every_reading_of_the_catalogue_has_a_rule_of_the_syncs() -> None:
    ops = (*readings.OWN_READS, readings.SCALAR_READ)
    named = [readings.reading_of([op]) for op in ops]
    others = [value for value in vars(readings).values() if isinstance(value, readings.Reading)]
    for reading in (*named, *others, *readings.SYNCHRONIZE.values()):
        assert reading is not None
        assert rules.get(reading.code).code.startswith("DSV1")
        assert reading.fix
    assert len(others) >= 5


def test_an_unknown_code_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UsageError) as caught:
        rules.get("DSV999")
    assert "DSV105" in (caught.value.hint or "")
