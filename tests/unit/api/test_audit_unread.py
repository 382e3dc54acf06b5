"""A file that cannot be read is no file without findings: with the detector itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dsv4prof.api.auditing import AuditRequest, audit_code
from dsv4prof.errors import InputError
from dsv4prof.model.report import Report

SOURCE = "import torch\n\n\ndef forward(x: torch.Tensor):\n    return x.item()\n"


def run(root: Path, **fields: Any) -> Report:
    return audit_code([str(root)], AuditRequest(**fields))


@pytest.mark.parametrize("text", [b"x = 1\0\n", b"print 1\n", b"\xff\n", b"def (\n"])
def test_an_audit_of_broken_files_alone_is_a_mistake(text: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes(text)
    with pytest.raises(InputError, match="nothing could be audited"):
        run(tmp_path)
    (tmp_path / "b.py").write_text(SOURCE)
    report = run(tmp_path)
    assert (report.data["files"], len(report.findings), len(report.checks)) == (1, 1, 1)


def test_a_broken_file_has_taken_nothing_from_the_baseline(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(SOURCE)
    (tmp_path / "b.py").write_text(SOURCE)
    run(tmp_path, write_baseline=tmp_path / "b.json")
    (tmp_path / "a.py").write_text(SOURCE + "def (\n")
    report = run(tmp_path, baseline=tmp_path / "b.json")
    assert report.data["baseline"]["gone"] == 0
    assert not [note for note in report.notes if "gone" in note]
