"""Lines from a dispatch pass, given only to findings that they surely belong to."""

from __future__ import annotations

from typing import Any

import pytest

from dsv4prof.model.finding import Finding, Location, Severity
from dsv4prof.model.session import CallSite
from dsv4prof.sync.join import join_call_sites

OPS = ["aten::repeat_interleave", "aten::item", "aten::_local_scalar_dense"]


def _finding(**evidence: Any) -> Finding:
    facts = {
        "ops": OPS,
        "spans": ["attach"],
        "region": "attach",
        "phases": {"draft_extend": 2},
        "function": "attach_meta",
    }
    return Finding(
        code="DSV105",
        severity=Severity.WARNING,
        message="m",
        location=Location("metadata.py", function="attach_meta"),
        evidence={**facts, **evidence},
    )


def _site(line: int = 88, **changes: Any) -> CallSite:
    fields = {
        "region": "attach",
        "op": OPS[0],
        "overload": "Tensor",
        "file": "/x/metadata.py",
        "function": "attach_meta",
        "calls": 1,
    }
    return CallSite(line=line, **{**fields, **changes})


def _line(*sites: CallSite, **evidence: Any) -> int | None:
    (joined,) = join_call_sites([_finding(**evidence)], sites)
    assert joined.location is not None
    return joined.location.line


def test_the_call_gives_file_and_line() -> None:
    (joined,) = join_call_sites([_finding()], [_site()])
    assert str(joined.location) == "attach_meta, /x/metadata.py:88"


@pytest.mark.parametrize(
    "site",
    [
        _site(keywords={"output_size": "24"}),
        _site(overload="self_int"),
        _site(region="elsewhere"),
        _site(op="aten::cumsum"),
    ],
)
def test_what_does_not_fit_gives_no_line(site: CallSite) -> None:
    assert _line(site) is None


def test_output_size_none_is_no_output_size() -> None:
    assert _line(_site(keywords={"output_size": "None"})) == 88


def test_an_inner_operator_serves_where_the_outer_is_never_dispatched() -> None:
    ops = ["aten::item", "aten::_local_scalar_dense"]
    assert _line(_site(op="aten::_local_scalar_dense", overload=""), ops=ops) == 88


def test_the_function_of_the_trace_decides_between_callers() -> None:
    assert _line(_site(), _site(120, function="other")) == 88


def test_several_lines_are_listed_and_none_is_chosen() -> None:
    (joined,) = join_call_sites([_finding()], [_site(88), _site(99)])
    assert joined.location is not None
    assert joined.location.line is None
    assert joined.evidence["call_sites"] == ["/x/metadata.py:88", "/x/metadata.py:99"]


def test_without_sites_nothing_changes() -> None:
    assert join_call_sites([_finding()], []) == [_finding()]
