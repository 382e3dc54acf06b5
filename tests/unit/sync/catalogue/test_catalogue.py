"""The catalogue: complete, true to what was measured, and light."""

from __future__ import annotations

import ast
import re
import subprocess
import sys

import pytest

from dsv4prof import rules
from dsv4prof.sync import catalogue, measured
from dsv4prof.sync.catalogue import Form
from dsv4prof.sync.measured.comparing import contradictions, expected

FORMS = catalogue.forms()


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.id)
def test_a_form_is_complete(form: Form) -> None:
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", form.id)
    assert rules.get(form.code).code == form.code
    assert form.syntax
    assert form.condition
    assert form.kineto_cuda
    assert form.kineto_rocm
    if form.syncs:
        assert form.direction != "none"
        assert form.fix is not None
        assert form.fix.text
        assert "unverified" in form.kineto_rocm, "nothing was measured on ROCm yet"
    else:
        assert form.direction == "none"


def test_ids_are_unique_and_found_again() -> None:
    assert len({form.id for form in FORMS}) == len(FORMS)
    for form in FORMS:
        assert catalogue.form(form.id) is form
    with pytest.raises(KeyError):
        catalogue.form("no-such-form")


def test_a_code_lists_its_waits_before_its_look_alikes() -> None:
    for code in catalogue.CODES:
        found = catalogue.of_code(code)
        assert found
        assert {form.code for form in found} == {code}
        assert [form.syncs for form in found] == sorted((form.syncs for form in found), reverse=True)
    assert catalogue.of_code("DSV401") == ()


def test_a_form_whose_mark_is_a_measurement_names_one() -> None:
    """Pinning is measured too, but it stalls without waiting, which no verdict shows."""
    without = [form.id for form in FORMS if form.mark == "measured" and not form.measured and form.direction != "alloc"]
    assert without == []


def test_every_measurement_that_a_form_names_is_a_case() -> None:
    known = {case.id for case in measured.cases().cases}
    assert {name for form in FORMS for name in form.measured} <= known


@pytest.mark.parametrize("path", measured.shipped(), ids=lambda path: path.stem)
def test_the_catalogue_says_what_was_measured(path: object) -> None:
    assert contradictions(measured.read(path)) == []  # type: ignore[arg-type]


def test_versions_decide_whether_a_form_waits() -> None:
    form = catalogue.form("assign-element-number")
    assert expected(form, measured.Meta(torch="2.13.1+cu130"))
    assert not expected(form, measured.Meta(torch="2.14.0a0+git"))
    assert expected(catalogue.form("item"), measured.Meta(torch="2.14.0", hip="7.0"))


def test_automatic_fixes_are_only_those_that_keep_the_result() -> None:
    for form in FORMS:
        if form.fix is not None and form.fix.automatic:
            assert form.fix.safety in ("same result", "exact total needed")


def test_the_catalogue_needs_neither_torch_nor_numpy() -> None:
    code = "import sys; from dsv4prof.sync import catalogue; catalogue.forms(); "
    code += "print('torch' in sys.modules, 'numpy' in sys.modules)"
    child = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert child.stdout.split() == ["False", "False"]


def test_the_syntax_of_forms_is_mostly_python() -> None:
    """Shortened calls may hold `...`; what is no Python at all would be a slip of the pen."""
    broken = []
    for form in FORMS:
        for text in form.syntax:
            body = text if not text.endswith(":") else text + " pass"
            body = body if not body.startswith(("for ", "with ")) or body.endswith("pass") else body + ": pass"
            try:
                ast.parse(body)
            except SyntaxError:
                broken.append((form.id, text))
    assert {id for id, _ in broken} <= {"removed-sync-not-shown-safe", "serialize", "write-after-read-across-streams"}
