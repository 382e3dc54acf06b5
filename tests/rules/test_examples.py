"""The static detector finds the fault in a rule's bad example, and does not find it in the good one."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from dsv4prof import rules
from dsv4prof.sync.code.audit import audit
from dsv4prof.sync.code.options import AuditOptions

# 203 and 204 are looked for where a change removes a sync, 205 is about such a change, 206 shows in a run alone; 111
# depends on the hot path.
_NOT_IN_ONE_VERSION = {"DSV203", "DSV204", "DSV205", "DSV206"}
_HEAD = "import logging\n\nimport torch\n\nlogger = logging.getLogger()\n\n\n"
RULES = [rule for rule in rules.all() if rule.code[3] in "12" and rule.code not in _NOT_IN_ONE_VERSION]


def _codes(folder: Path, example: str) -> set[str]:
    whole = example.startswith("def ")
    body = example if whole else "def forward(self, dev):\n" + textwrap.indent(example, "    ")
    (folder / "example.py").write_text(f"{_HEAD}{body}\n")
    found = audit(folder, AuditOptions(cache_dir=None))
    assert not found.problems
    return {one.code for one in found.found}


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.code)
def test_the_bad_example_has_the_fault_and_the_good_one_has_it_not(rule: rules.Rule, tmp_path: Path) -> None:
    assert rule.code in _codes(tmp_path, rule.bad)
    assert rule.code not in _codes(tmp_path, rule.good)
