"""Tables and counts of an audit: what the findings add up to, and how they compare with labels and a baseline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import msgspec

from dsv4prof import rules
from dsv4prof.api.audit_targets import Targets
from dsv4prof.model.finding import SourceFinding
from dsv4prof.model.report import Cell, Column, Metric, Section
from dsv4prof.sync.code.living.labels import Judged, Outcome
from dsv4prof.sync.code.living.suppressions import Suppressed
from dsv4prof.sync.code.values import LEVELS

_LEVELS = tuple(reversed(LEVELS))
_LEVEL_COLUMNS = [Column(level, level, "count") for level in _LEVELS]


def statistics(findings: Sequence[SourceFinding]) -> list[Section]:
    """Counts by rule and by folder, each by level and with those on hot paths."""
    return [
        _counted("statistics.rules", "By rule", "rule", findings, lambda f: f.code, named=True),
        _counted("statistics.folders", "By folder", "folder", findings, lambda f: f.path.rpartition("/")[0] or "."),
    ]


def _counted(
    key: str, title: str, what: str, findings: Sequence[SourceFinding], of: Any, *, named: bool = False
) -> Section:
    groups: dict[str, list[SourceFinding]] = {}
    for finding in findings:
        groups.setdefault(of(finding), []).append(finding)
    rows: list[dict[str, Cell]] = []
    for name, group in sorted(groups.items(), key=lambda item: (-len(item[1]), item[0])):
        levels = Counter(finding.level for finding in group)
        row: dict[str, Cell] = {what: name, "count": len(group), "hot": sum(finding.hot for finding in group)}
        row |= {level: levels[level] for level in _LEVELS}
        rows.append({**row, "name": rules.get(name).name} if named else row)
    columns = [Column(what, what), Column("count", "count", "count"), Column("hot", "hot", "count"), *_LEVEL_COLUMNS]
    return Section(key=key, title=title, columns=[*columns, *([Column("name", "name")] if named else [])], rows=rows)


def counts(findings: Sequence[SourceFinding]) -> dict[str, Any]:
    """The same for machines, of every finding, shown or not."""
    return {
        "by_level": {level: sum(f.level == level for f in findings) for level in _LEVELS},
        "by_rule": dict(sorted(Counter(f.code for f in findings).items())),
        "hot": sum(f.hot for f in findings),
    }


def label_sections(outcome: Outcome, where: Targets) -> list[Section]:
    """How sure the detector was at each labelled site, then every site that came out wrong."""
    rows: list[dict[str, Cell]] = [{"level": level, **count} for level, count in outcome.by_level.items()]
    columns = [Column("level", "level"), Column("sync", "syncs", "count"), Column("no_sync", "look-alikes", "count")]
    unknown = ", ".join(outcome.unknown_files)
    return [
        Section(
            key="labels",
            title="Labelled sites, by the surest finding there",
            columns=columns,
            rows=rows,
            note=f"not among the audited files: {unknown}" if unknown else None,
        ),
        *_judged("labels.misses", "Missed syncs", outcome.misses, where),
        *_judged("labels.false", "Flagged look-alikes", outcome.false, where),
    ]


def _judged(key: str, title: str, judged: list[Judged], where: Targets) -> list[Section]:
    if not judged:
        return []
    rows: list[dict[str, Cell]] = [
        {
            "place": f"{where.shown(each.site.file)}:{each.site.line}",
            "level": "no such file" if each.unknown_file else each.level or "none",
            "code": ", ".join(each.codes),
            "label": each.site.reason or each.site.kind,
            "found": each.found_reason,
        }
        for each in judged
    ]
    columns = [Column("place", "where"), Column("level", "found as"), Column("code", "rule")]
    columns += [Column("label", "why it is labelled so"), Column("found", "why it was found")]
    return [Section(key=key, title=title, columns=columns, rows=rows)]


def label_metrics(outcome: Outcome) -> list[Metric]:
    """The two rates, at certain and likely."""
    return [
        Metric(
            "labels.recall",
            f"recall ({outcome.found} of {outcome.syncs} syncs)",
            _percent(outcome.recall),
            "percent",
            None if outcome.syncs else "no site is labelled sync",
        ),
        Metric(
            "labels.false_rate",
            f"false ({outcome.flagged} of {outcome.look_alikes} look-alikes)",
            _percent(outcome.false_rate),
            "percent",
            None if outcome.look_alikes else "no site is labelled no_sync",
        ),
    ]


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def label_facts(outcome: Outcome) -> dict[str, Any]:
    """`labels` of the JSON: rates as shares, each wrong site with its own fields and what was found there."""
    facts: dict[str, Any] = msgspec.to_builtins(outcome)
    for key in ("misses", "false"):
        facts[key] = [{**each.pop("site"), **each} for each in facts[key]]
    return facts


def suppressed_facts(pairs: Sequence[tuple[SourceFinding, Suppressed]]) -> list[dict[str, Any]]:
    """Findings that a remark allows, with the remark."""
    return [
        {
            **msgspec.to_builtins(finding),
            "allowed_by": {
                "kind": allowed.by.kind,
                "line": allowed.by.line,
                "reason": allowed.by.reason,
                "protects": allowed.by.protects,
            },
        }
        for finding, allowed in pairs
    ]
