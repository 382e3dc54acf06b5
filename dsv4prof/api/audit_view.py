"""Which findings a report shows: by rule, by how sure they are, and by whether a hot path reaches them."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

import msgspec

from dsv4prof import rules
from dsv4prof.errors import UsageError
from dsv4prof.model.finding import SourceFinding
from dsv4prof.sync.code.values import LEVELS

# The rules of an audit of source: the tool's remarks, syncs, hazards.
_FAMILIES = ("DSV001", "DSV1", "DSV2")


class View(msgspec.Struct, frozen=True, kw_only=True):
    """`level` is the least sure one shown. `select` and `ignore` hold codes, starts of codes or names of
    rules; `ignore` wins unless a longer one of `select` names the finding."""

    level: str
    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    hot_only: bool = False

    @classmethod
    def of(cls, level: str, select: Sequence[str], ignore: Sequence[str], hot_only: bool) -> View:
        """Raises UsageError for a level or code that is unknown."""
        if level not in LEVELS:
            raise UsageError(f"there is no level {level!r}", hint=f"one of {', '.join(reversed(LEVELS))}")
        return cls(level=level, select=_codes(select), ignore=_codes(ignore), hot_only=hot_only)

    def asks_for(self, finding: SourceFinding) -> bool:
        """By rule and by hot path; a remark that allows nothing belongs to no path."""
        chosen = max((len(code) for code in self.select if finding.code.startswith(code)), default=0)
        ignored = max((len(code) for code in self.ignore if finding.code.startswith(code)), default=0)
        if (self.select and not chosen) or (ignored and ignored >= chosen):
            return False
        return finding.hot or not self.hot_only or not finding.code.startswith("DSV1")

    def is_sure_enough(self, finding: SourceFinding) -> bool:
        return LEVELS.index(finding.level) >= LEVELS.index(self.level)


def _codes(words: Sequence[str]) -> tuple[str, ...]:
    known = [rule.code for rule in rules.all() if rule.code.startswith(_FAMILIES)]
    named = {rule.name: rule.code for rule in rules.all() if rule.code in known}
    codes = []
    for word in words:
        code = named.get(word.strip().lower(), word.strip().upper())
        if not code:
            continue
        if len(code) < 3 or not any(each.startswith(code) for each in known):
            close = difflib.get_close_matches(code, known, n=1, cutoff=0.6)
            hint = f"did you mean {close[0]}?" if close else f"known: {', '.join(known)}"
            raise UsageError(f"no rule of the audit is called {word!r}", hint=hint)
        codes.append(code)
    return tuple(codes)
