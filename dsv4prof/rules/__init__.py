"""Every rule by code. Families: 0xx the tool itself, 1xx host syncs, 2xx hazards, 3xx graphs and phases, 4xx trace
quality, 5xx ranks and communication, 6xx memory, 7xx acceptance."""

from __future__ import annotations

from dsv4prof.errors import UsageError
from dsv4prof.rules import acceptance, graphs, quality, ranks, syncs, tool
from dsv4prof.rules.rule import Rule

_RULES: dict[str, Rule] = {
    rule.code: rule
    for family in (tool.RULES, syncs.RULES, graphs.RULES, quality.RULES, ranks.RULES, acceptance.RULES)
    for rule in family
}


def get(code: str) -> Rule:
    """The rule of a code such as DSV105. Raises UsageError for an unknown one."""
    try:
        return _RULES[code.upper()]
    except KeyError:
        raise UsageError(f"there is no rule {code!r}", hint=f"known codes: {', '.join(sorted(_RULES))}") from None


def all() -> list[Rule]:
    """Every rule, by code."""
    return [_RULES[code] for code in sorted(_RULES)]


__all__ = ["Rule", "all", "get"]
