"""SARIF 2.1.0, which code hosts and editors read: rules with their help, results with fingerprints that outlive edits,
the inference as a code flow, the way from a hot root as a stack, and fixes where the text of one is known."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote

import msgspec

from dsv4prof import rules
from dsv4prof.model.finding import Finding, Severity, SourceEdit, SourceFinding, SourceStep
from dsv4prof.model.report import Report

_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_BASELINE = {"new": "new", "unchanged": "unchanged", "moved": "updated"} | dict.fromkeys(
    ("fixed", "gone", "removed"), "absent"
)
_SURROGATE = re.compile("[\ud800-\udfff]")


def render_sarif(report: Report) -> str:
    """One run. Findings without a place have none here either; reports without findings give an empty run."""
    codes = sorted({finding.code for finding in report.findings})
    driver = {
        "name": "dsv4prof",
        "version": report.provenance.versions.get("dsv4prof", "0"),
        "rules": [_rule(code) for code in codes],
    }
    unread = [_notification(check.message) for check in report.checks if check.ok is False]
    run = {
        "tool": {"driver": driver},
        "columnKind": "unicodeCodePoints",
        "invocations": [{"executionSuccessful": True, "toolExecutionNotifications": unread}],
        "results": [_result(finding, codes.index(finding.code)) for finding in report.findings],
    }
    log = {"$schema": _SCHEMA, "version": "2.1.0", "runs": [run]}
    return msgspec.json.format(msgspec.json.encode(log), indent=1).decode() + "\n"


def _rule(code: str) -> dict[str, Any]:
    rule = rules.get(code)
    return {
        "id": code,
        "name": "".join(word.capitalize() for word in rule.name.split("-")),
        "shortDescription": {"text": rule.summary},
        "fullDescription": {"text": rule.summary},
        "help": {"text": rule.doc, "markdown": rule.doc},
        "defaultConfiguration": {"level": rule.severity.value},
    }


def _result(finding: Finding, index: int) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": finding.code,
        "ruleIndex": index,
        "level": finding.severity.value if finding.severity is not Severity.NOTE else "note",
        "message": {"text": _text(finding.message + (f". Fix: {finding.fix}" if finding.fix else ""))},
    }
    place = finding.location
    if place is not None:
        physical: dict[str, Any] = {"artifactLocation": {"uri": uri(place.file)}}
        if place.line:
            physical["region"] = {"startLine": place.line, "endLine": place.end_line or place.line}
        result["locations"] = [{"physicalLocation": physical}]
        if place.function:
            result["locations"][0]["logicalLocations"] = [{"fullyQualifiedName": place.function, "kind": "function"}]
    if finding.fingerprint:
        result["partialFingerprints"] = {"dsv4prof/v1": finding.fingerprint}
    if isinstance(finding, SourceFinding):
        _add_source(result, finding)
    return result


def _add_source(result: dict[str, Any], finding: SourceFinding) -> None:
    physical = result["locations"][0]["physicalLocation"]
    if not finding.side:
        physical["region"] = _region(finding.line, finding.column, finding.end_line, finding.end_column)
    elif finding.now_line:
        # Viewers open the text that is there.
        physical["artifactLocation"] = {"uri": uri(finding.now_file)}
        physical["region"] = {"startLine": finding.now_line}
    else:
        physical.pop("region", None)
    if finding.moved:
        result["partialFingerprints"]["dsv4prof/moved/v1"] = finding.moved
    if finding.status in _BASELINE:
        result["baselineState"] = _BASELINE[finding.status]
    if finding.why and not finding.side:
        last = {
            "location": {"physicalLocation": physical, "message": {"text": _text(finding.reason or finding.message)}}
        }
        steps = [{"location": _step(step)} for step in finding.why]
        result["codeFlows"] = [
            {
                "message": {"text": "where the value came to the device"},
                "threadFlows": [{"locations": [*steps, last]}],
            }
        ]
    if finding.hot_path and not finding.side:
        frames = [{"location": _step(step)} for step in reversed(finding.hot_path)]
        result["stacks"] = [{"message": {"text": "the way from a hot root"}, "frames": frames}]
    if finding.edits:
        result["fixes"] = [_fix(finding)]
    old = {"old_file": uri(finding.path), "old_line": finding.line} if finding.side else {}
    result["properties"] = {
        **old,
        "level": finding.level,
        "hot": finding.hot,
        "reason": _text(finding.reason),
        "conditional": finding.conditional,
        "loop": finding.loop,
    }


def _fix(finding: SourceFinding) -> dict[str, Any]:
    changes: dict[str, list[SourceEdit]] = {}
    for edit in finding.edits:
        changes.setdefault(edit.path, []).append(edit)
    return {
        "description": {"text": _text(finding.fix or finding.message)},
        "artifactChanges": [
            {
                "artifactLocation": {"uri": uri(path)},
                "replacements": [
                    {
                        "deletedRegion": _region(edit.line, edit.column, edit.end_line, edit.end_column),
                        "insertedContent": {"text": edit.text},
                    }
                    for edit in edits
                ],
            }
            for path, edits in changes.items()
        ],
    }


def _step(step: SourceStep) -> dict[str, Any]:
    location: dict[str, Any] = {"message": {"text": _text(step.text)}}
    if step.file:
        physical: dict[str, Any] = {"artifactLocation": {"uri": uri(step.file)}}
        if step.line:
            physical["region"] = {"startLine": step.line}
        location["physicalLocation"] = physical
    return location


def _region(line: int, column: int, end_line: int, end_column: int) -> dict[str, int]:
    return {"startLine": line, "startColumn": column, "endLine": end_line, "endColumn": end_column}


def _notification(message: str) -> dict[str, Any]:
    return {"level": "warning", "message": {"text": _text(message)}}


def uri(file: str) -> str:
    """A path as SARIF names it: relative ones as they are, absolute ones with their scheme."""
    path = quote(file.encode("utf-8", "surrogateescape"), safe="/")
    return f"file://{path}" if PurePosixPath(file).is_absolute() else path


def _text(text: str) -> str:
    return _SURROGATE.sub("\ufffd", text)
