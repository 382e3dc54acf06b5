"""What we ask of others holds for us: our own code has no host sync without a reason beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsv4prof.api.auditing import audit_code

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("folder", ["engine", "dsv4prof"])
def test_our_own_code_is_clean_or_says_why(folder: str) -> None:
    report = audit_code([str(ROOT / folder)])
    assert [f"{f.location}: {f.message}" for f in report.findings] == []
    assert report.data["files"] > 50
    assert all(allowed["allowed_by"]["reason"] for allowed in report.data["suppressed"])


def test_the_read_of_the_pull_request_is_allowed_on_its_hot_path_and_not_overlooked() -> None:
    report = audit_code([str(ROOT / "engine")])
    (read,) = [each for each in report.data["suppressed"] if each["function"] == "attach_prefill_meta"]
    assert (read["code"], read["hot"], read["times"]) == ("DSV105", True, 2)
