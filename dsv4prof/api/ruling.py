"""Rules explained: one of them with the forms that it covers, or all of them in a line each."""

from __future__ import annotations

from typing import Any

import msgspec

from dsv4prof import __version__, rules
from dsv4prof.api.words import plural
from dsv4prof.model.report import Column, Provenance, Report, Section, Verdict
from dsv4prof.sync import catalogue

_FAMILIES = {
    "0": "The tool itself",
    "1": "Host syncs",
    "2": "Hazards",
    "3": "Graphs and phases",
    "4": "Trace quality",
    "5": "Ranks and communication",
    "7": "Acceptance of drafts",
    "8": "Faults and hangs",
}


def rule(word: str) -> Report:
    """One rule, by code, number or name. `data` has the rule and its forms. Raises UsageError for an unknown one."""
    found = rules.find(word)
    forms = catalogue.of_code(found.code)
    waiting = sum(form.syncs for form in forms)
    return Report(
        kind="rule",
        provenance=_provenance([word]),
        sections=[
            Section(
                key="forms",
                title="Forms",
                columns=[
                    Column("id", "form"),
                    Column("what", "what"),
                    Column("condition", "when"),
                    Column("mark", "known"),
                ],
                rows=[
                    {"id": form.id, "what": form.what, "condition": form.condition, "mark": form.mark} for form in forms
                ],
            )
        ],
        verdict=Verdict(
            exit_code=0,
            summary=f"{found.code} {found.name}"
            + (
                f": {plural(waiting, 'form')} that wait, {plural(len(forms) - waiting, 'look-alike')}"
                if waiting
                else ""
            ),
        ),
        data={"rule": _plain(found), "forms": [_plain(form) for form in forms]},
    )


def rules_list() -> Report:
    """Every rule in a line, by family."""
    known = rules.all()
    families = sorted({rule.code[3] for rule in known})
    return Report(
        kind="rules",
        provenance=_provenance([]),
        sections=[
            Section(
                key=f"family{family}",
                title=_FAMILIES[family],
                columns=[
                    Column("code", "code"),
                    Column("name", "name"),
                    Column("severity", "level"),
                    Column("summary", "what"),
                ],
                rows=[
                    {"code": rule.code, "name": rule.name, "severity": rule.severity.value, "summary": rule.summary}
                    for rule in known
                    if rule.code[3] == family
                ],
            )
            for family in families
        ],
        verdict=Verdict(exit_code=0, summary=plural(len(known), "rule")),
        next_command="dsv4prof rule DSV105",
        data={"rules": [_plain(rule) for rule in known]},
    )


def _provenance(inputs: list[str]) -> Provenance:
    return Provenance(command="rule", inputs=inputs, versions={"dsv4prof": __version__})


def _plain(value: Any) -> dict[str, Any]:
    plain: dict[str, Any] = msgspec.to_builtins(value)
    return plain
