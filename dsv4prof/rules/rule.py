"""What a rule is: a code that never changes its meaning, a name, how much it matters, and the text that explains it."""

from __future__ import annotations

import msgspec

from dsv4prof.model.finding import Severity


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """`summary` is one line; `doc` says why it matters, how it is recognised and what to do."""

    code: str
    name: str
    severity: Severity
    summary: str
    doc: str
