"""Which make of the core is used, and how the compiled one is built."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from dsv4prof.errors import UsageError
from dsv4prof.trace import core
from dsv4prof.trace.core import native

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture(autouse=True)
def _fresh_choice():
    core.core.cache_clear()
    yield
    core.core.cache_clear()


def _library(build, folder: Path, *options: str) -> Path:
    path = folder / native.LIBRARY.name
    if not options:
        assert build.compile_core(ROOT, path) is None
        return path
    sources = sorted(map(str, native.SOURCES.glob("*.c")))
    subprocess.run([*build.find_compiler(), *build.FLAGS, *options, *sources, "-o", str(path)], check=True)
    return path


def test_the_environment_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DSV4PROF_CORE", "plain")
    assert core.core_name() == "plain"
    core.core.cache_clear()
    monkeypatch.setenv("DSV4PROF_CORE", "fast")
    with pytest.raises(UsageError, match="DSV4PROF_CORE is 'fast'"):
        core.scanner()


def test_without_a_library_python_does_it_unless_asked_otherwise(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(native.Native.__init__, "__defaults__", (tmp_path / "libdsv4core.so",))
    assert core.core_name() == "plain"
    core.core.cache_clear()
    monkeypatch.setenv("DSV4PROF_CORE", "native")
    with pytest.raises(UsageError, match=r"compiled core: libdsv4core\.so is not there; build it with"):
        core.core_name()


def test_a_library_that_is_none_is_not_used(tmp_path: Path) -> None:
    path = tmp_path / "libdsv4core.so"
    path.write_bytes(b"no library")
    with pytest.raises(native.UnusableError, match="does not load"):
        native.Native(path)


def test_a_built_library_is_used(build, tmp_path: Path) -> None:
    path = _library(build, tmp_path)
    scanner = native.Native(path).new_scanner()
    assert len(scanner.scan(b'{"ph":"M"}').rows) == 1
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


def test_a_library_of_other_sources_is_not_used(build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _library(build, tmp_path, '-DDSV4_STAMP="0123"')
    with pytest.raises(native.UnusableError, match="built from other sources"):
        native.Native(path)
    monkeypatch.setattr(native, "SOURCES", tmp_path / "none")
    native.Native(path)


def test_a_library_of_another_interface_is_not_used(build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = _library(build, tmp_path)
    monkeypatch.setattr(native, "ABI", native.ABI + 1)
    with pytest.raises(native.UnusableError, match=f"has interface {native.ABI - 1}, this version needs {native.ABI}"):
        native.Native(path)


@pytest.mark.parametrize(("compiler", "fault"), [("false", "false fails: 1"), ("/no/such/cc -m64", "no C compiler")])
def test_a_failed_build_says_why_and_leaves_nothing(
    build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compiler: str, fault: str
) -> None:
    monkeypatch.setenv("CC", compiler)
    assert fault in build.compile_core(ROOT, tmp_path / "libdsv4core.so")
    assert not list(tmp_path.iterdir())


def test_importing_the_core_reads_no_environment_and_loads_no_library() -> None:
    code = (
        "import sys, dsv4prof.trace.core as c\n"
        "assert not c.core.cache_info().currsize and 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"DSV4PROF_CORE": "nonsense"}, cwd=ROOT)
