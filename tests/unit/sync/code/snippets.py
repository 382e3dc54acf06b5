"""Audits of a few lines: what is found on which line."""

from __future__ import annotations

import textwrap
from pathlib import Path
from typing import Any

from dsv4prof.sync.code.audit import audit
from dsv4prof.sync.code.found import Audit, Found
from dsv4prof.sync.code.options import AuditOptions

HEAD = "import numpy as np\nimport torch\nfrom typing import List, Optional, Tuple, Union\n"


def write(folder: Path, files: dict[str, str]) -> Path:
    """The files below a folder."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text), encoding="utf-8")
    return folder


def audited(folder: Path, files: dict[str, str], **options: Any) -> Audit:
    """The audit of the files, in one process, without a cache unless it is asked for."""
    return audit(write(folder, files), AuditOptions(**{"jobs": 1, **options}))


def found(folder: Path, body: str, **options: Any) -> list[Found]:
    """What was found at likely and above in one module with the usual imports."""
    made = audited(folder, {"m.py": HEAD + textwrap.dedent(body)}, **options)
    assert made.problems == []
    return [one for one in made.found if one.level != "possible" and not one.code.startswith("DSV2")]


def marked(folder: Path, body: str, **options: Any) -> tuple[set[int], set[int]]:
    """Lines with a finding, and the lines that end in `# waits`: a test demands that they are the same."""
    text = HEAD + textwrap.dedent(body)
    expected = {number for number, line in enumerate(text.split("\n"), 1) if line.rstrip().endswith("# waits")}
    return {one.line for one in found(folder, body, **options)}, expected
