"""The architecture as facts that a change can break: who imports what, what a start costs, what is public."""

from __future__ import annotations

import json
import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import dsv4prof

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ("torch", "numpy", "jinja2", "rich", "objgraph", "psutil")


def _modules_after(code: str) -> set[str]:
    child = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}\nimport json; print(json.dumps(sorted(sys.modules)))"],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    return set(json.loads(child.stdout.strip().splitlines()[-1]))


def test_help_loads_nothing_heavy() -> None:
    loaded = _modules_after("from dsv4prof.cli.app import app\ntry: app(['--help'])\nexcept SystemExit: pass")
    assert not loaded & set(HEAVY)


def test_import_of_the_package_loads_no_part_of_it() -> None:
    loaded = _modules_after("import dsv4prof")
    assert {name for name in loaded if name.startswith("dsv4prof.")} == set()


@pytest.mark.parametrize(
    "command",
    [
        ["merge", "nowhere"],
        ["analyze", "nowhere"],
        ["attach", "http://127.0.0.1:9"],
        ["sessions", "list"],
        ["sessions", "show", "nowhere"],
    ],
)
def test_commands_without_torch_do_not_import_it(command: list[str]) -> None:
    loaded = _modules_after(
        "from dsv4prof.cli import console\nfrom dsv4prof.cli.app import app\n"
        f"console.guarded(lambda: app({command!r}, standalone_mode=False))"
    )
    assert "torch" not in loaded
    # Reading events takes numpy; looking at manifests does not.
    assert command[0] != "sessions" or "numpy" not in loaded


def _submodules(package: str) -> list[str]:
    module = __import__(package)
    return [name for _, name, _ in pkgutil.walk_packages(module.__path__, package + ".")]


def test_importing_every_submodule_hides_no_public_name() -> None:
    code = "\n".join(f"import {name}" for name in _submodules("dsv4prof") if not name.endswith("__main__"))
    code += "\nimport dsv4prof\n"
    code += "assert all(not isinstance(getattr(dsv4prof, n), type(sys)) for n in dsv4prof.__all__), dsv4prof.__all__"
    _modules_after(code)


def test_public_names_are_sorted_and_exist() -> None:
    assert dsv4prof.__all__ == sorted(dsv4prof.__all__)
    for name in dsv4prof.__all__:
        assert getattr(dsv4prof, name) is not None


def test_engine_and_toolkit_agree_on_the_phases() -> None:
    pytest.importorskip("torch")
    from dsv4_engine.phase import Phase as EnginePhase
    from dsv4prof.model.phase import Phase

    assert {phase.value for phase in EnginePhase} == {phase.value for phase in Phase}


def test_files_stay_readable() -> None:
    long = {
        str(path.relative_to(ROOT)): count
        for folder in ("dsv4prof", "engine")
        for path in (ROOT / folder).rglob("*.py")
        if (count := len(path.read_text().splitlines())) > 400
    }
    assert not long, "over 400 lines: does each have one reason to change?"
