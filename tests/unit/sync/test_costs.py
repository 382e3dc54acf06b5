"""A cost goes to the statement that caused it, and to no other."""

from __future__ import annotations

from typing import Any

import msgspec

from dsv4prof.model.finding import Finding, Location, Severity
from dsv4prof.sync.code.found import Found
from dsv4prof.sync.costs import costs_of


def found(line: int, code: str = "DSV105", path: str = "pkg/meta.py", function: str = "Builder.attach") -> Found:
    return Found(
        path=path, line=line, end_line=line + 1, column=0, end_column=9, statement_line=line, statement_end=line + 1,
        code=code, form="x", level="likely", function=function, text="x", reason="",
    )  # fmt: skip


def read(line: int | None, cost: int | None = 1_000, code: str = "DSV105", **evidence: Any) -> Finding:
    return Finding(
        code=code, severity=Severity.WARNING, message="", cost_ns=cost, cost_reason="blocked host time a step",
        location=Location("/srv/site-packages/pkg/meta.py", line=line, function="attach"),
        evidence={"reads": 4, "per_step": 2.0, "gpu_idle_per_step_ns": 500, **evidence},
    )  # fmt: skip


def test_a_known_line_decides() -> None:
    first, second = costs_of([found(10), found(20)], [read(21)])
    assert first is None
    assert second is not None
    assert (second.cost_ns, second.idle_ns, second.per_step, second.shared) == (1_000, 500, 2.0, 0)


def test_without_a_line_all_statements_of_the_rule_share_the_site() -> None:
    costs = costs_of([found(10), found(20), found(30, code="DSV101"), found(40, function="other")], [read(None)])
    assert [cost.shared if cost else None for cost in costs] == [1, 1, None, None]


def test_sites_of_one_statement_add_up() -> None:
    (cost,) = costs_of([found(10)], [read(10, cost=1_000), read(11, cost=250)])
    assert cost is not None
    assert (cost.cost_ns, cost.reads, cost.per_step) == (1_250, 8, 4.0)


def test_a_run_without_a_device_costs_nothing_that_is_known() -> None:
    (cost,) = costs_of([found(10)], [read(10, cost=None)])
    assert cost is not None
    assert cost.cost_ns is None


def test_another_file_of_the_same_name_is_not_meant() -> None:
    assert costs_of([found(10, path="other/meta.py")], [read(10)]) == [None]
    assert costs_of([found(10, path="meta.py")], [read(10)]) != [None]


def _in_range(region: str, *ops: str) -> Finding:
    return msgspec.structs.replace(read(None, region=region, ops=list(ops)), location=None)


def test_without_stacks_the_range_and_the_operators_name_the_statement() -> None:
    statements = [
        msgspec.structs.replace(found(10), form="repeat-interleave-tensor"),
        msgspec.structs.replace(found(20), form="masked-select"),
        msgspec.structs.replace(found(30, function="other"), form="repeat-interleave-tensor"),
    ]
    site = _in_range("attach", "aten::repeat_interleave", "aten::item", "aten::_local_scalar_dense")
    assert [cost is not None for cost in costs_of(statements, [site])] == [True, False, False]
    assert costs_of(statements, [_in_range("elsewhere", "aten::repeat_interleave")]) == [None, None, None]
    assert costs_of(statements, [_in_range("attach", "aten::item")]) == [None, None, None]
