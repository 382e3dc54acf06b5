"""Every rule by code. Families: 0xx the tool itself, 1xx host syncs, 2xx hazards, 3xx graphs and phases, 4xx trace
quality, 5xx ranks and communication, 6xx memory, 7xx acceptance, 8xx faults and hangs.

Syncs and hazards have a module each (`dsv105`), the others one a family. They load when a rule is first asked for.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module

from dsv4prof.errors import UsageError
from dsv4prof.rules.rule import Rule

_FAMILIES = ("tool", "graphs", "quality", "ranks", "acceptance", "faults")
_ALONE = ("dsv001", *(f"dsv{number}" for number in (*range(101, 113), *range(201, 207))))


@cache
def _by_code() -> dict[str, Rule]:
    found = [rule for name in _FAMILIES for rule in import_module(f"{__name__}.{name}").RULES]
    found += [import_module(f"{__name__}.{name}").RULE for name in _ALONE]
    return {rule.code: rule for rule in sorted(found, key=lambda rule: rule.code)}


def get(code: str) -> Rule:
    """The rule of a code such as DSV105. Raises UsageError for an unknown one."""
    try:
        return _by_code()[code.upper()]
    except KeyError:
        raise UsageError(f"there is no rule {code!r}", hint=f"known codes: {', '.join(_by_code())}") from None


def find(word: str) -> Rule:
    """The rule that a person means: `DSV105`, `dsv105`, `105` or its name. Raises UsageError with a suggestion."""
    known = {name: rule for rule in all() for name in (rule.code.lower(), rule.code[3:], rule.name)}
    wanted = word.strip().lower().replace("_", "-")
    if wanted in known:
        return known[wanted]
    import difflib

    close = difflib.get_close_matches(wanted, known, n=1, cutoff=0.6)
    hint = f"did you mean {known[close[0]].code} ({known[close[0]].name})?" if close else "dsv4prof rule lists all"
    raise UsageError(f"there is no rule {word!r}", hint=hint)


def all() -> list[Rule]:
    """Every rule, by code."""
    return list(_by_code().values())


__all__ = ["Rule", "all", "find", "get"]
