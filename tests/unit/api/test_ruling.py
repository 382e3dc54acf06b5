"""`dsv4prof rule`: found by any of its names, complete in every format, and helpful where it is not known."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from dsv4prof import api, rules
from dsv4prof.errors import UsageError
from dsv4prof.report.rule_page import markdown_forms, render_rule
from dsv4prof.sync import catalogue


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "dsv4prof", "rule", *words], capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    "word", ["DSV105", "dsv105", "105", "data-dependent-shape", "data_dependent_shape", " DSV105 "]
)
def test_a_rule_is_found_by_code_number_and_name(word: str) -> None:
    assert rules.find(word).code == "DSV105"


@pytest.mark.parametrize(("word", "hint"), [("tolists", "DSV102 (tolist)"), ("DSV113", "DSV11"), ("qqq", "lists all")])
def test_an_unknown_word_gets_a_suggestion(word: str, hint: str) -> None:
    with pytest.raises(UsageError) as caught:
        rules.find(word)
    assert hint in (caught.value.hint or "")


def test_every_rule_has_a_page_that_names_its_forms_their_conditions_and_fixes() -> None:
    for rule in rules.all():
        data = api.rule(rule.code).data
        page = " ".join(render_rule(data).split())
        assert rule.code in page
        assert " ".join(rule.doc.split()) in page
        for form in catalogue.of_code(rule.code):
            assert form.id in page
            assert " ".join(form.condition.split()) in page
            if form.syncs:
                assert form.fix is not None
                assert " ".join(form.fix.text.split()) in page
                assert " ".join(form.kineto_rocm.split()) in page


def test_versions_and_counts_are_told() -> None:
    page = render_rule(api.rule("108").data)
    block = page[page.index("assign-element-number  ") :]
    assert "waits once; torch to 2.13" in block[:600]
    assert "waits 2 times" in render_rule(api.rule("105").data)
    assert "once an element" in render_rule(api.rule("101").data)


def test_a_markdown_table_has_as_many_cells_in_every_row() -> None:
    for code in catalogue.CODES:
        for line in markdown_forms(api.rule(code).data["forms"]).splitlines():
            if line.startswith("|"):
                cells = line.replace("\\|", "").count("|") - 1
                assert cells in (4, 11), line


def test_the_command_prints_text_json_and_markdown() -> None:
    text, machine, markdown = (run("toList", "--format", fmt) for fmt in ("text", "json", "markdown"))
    assert text.stdout.startswith("DSV102 tolist (warning)\n")
    assert json.loads(machine.stdout)["forms"][0]["id"] == "tolist"
    assert markdown.stdout.startswith("## DSV102 tolist\n")
    assert {text.returncode, machine.returncode, markdown.returncode} == {0}


def test_without_a_code_all_rules_are_listed() -> None:
    child = run()
    assert child.returncode == 0
    assert all(rule.code in child.stdout and rule.summary in child.stdout for rule in rules.all())


def test_an_unknown_code_exits_2_with_one_line_and_a_hint() -> None:
    child = run("DSV555")
    assert (child.returncode, child.stdout) == (2, "")
    assert len(child.stderr.splitlines()) == 2
