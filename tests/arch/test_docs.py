"""The generated pages say what the code says."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from dsv4prof.cli.app import app

ROOT = Path(__file__).resolve().parents[2]


def test_generated_pages_are_fresh() -> None:
    child = subprocess.run(
        [sys.executable, "docs/generate.py", "--check"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert child.returncode == 0, child.stderr


def test_every_command_has_its_help_on_the_page() -> None:
    """The page is of named commands, and a new one is easily forgotten."""

    def walk(command: Any, words: str) -> Iterator[str]:
        yield words
        for name, inner in getattr(command, "commands", {}).items():
            yield from walk(inner, f"{words} {name}")

    told = re.findall(r"^## (.+)$", (ROOT / "docs" / "cli.md").read_text(), re.MULTILINE)
    assert sorted(walk(typer.main.get_command(app), "dsv4prof")) == sorted(told)


def test_links_between_pages_lead_somewhere() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_the_tutorials_own_program_gets_its_phases_analysed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="the engine extra is not installed")
    from dsv4prof.api import analyze

    program = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "tutorial.md").read_text(), re.DOTALL)[-1]
    monkeypatch.chdir(tmp_path)
    exec(
        program,
        {"batches": range(20), "draft": abs, "build_metadata": max, "verify": lambda *_: range(9)},
    )
    report = analyze(["latest"])
    assert set(report.data["phases"]) == {"draft", "target_verify", "idle"}
    assert report.data["accept_length"] == 9 / 4
