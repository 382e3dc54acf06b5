"""Both makes of the core: what a test says of one holds for the other."""

from __future__ import annotations

import importlib.util
import subprocess
from pathlib import Path
from types import ModuleType

import pytest

from dsv4prof.trace.core import NATIVE, PLAIN, Core, native

ROOT = Path(__file__).resolve().parents[4]


def native_core(path: Path = native.LIBRARY) -> Core:
    try:
        library = native.Native(path)
    except native.UnusableError as error:
        pytest.skip(str(error))
    return Core(NATIVE, library.new_scanner, library.new_encoder, library.lanes, library.open_at)


@pytest.fixture(scope="session", params=["plain", "native"])
def make(request: pytest.FixtureRequest) -> Core:
    return PLAIN if request.param == "plain" else native_core()


@pytest.fixture(scope="session")
def both() -> tuple[Core, Core]:
    return PLAIN, native_core()


@pytest.fixture(scope="session")
def build() -> ModuleType:
    """The build hook; tests that need it are skipped without a compiler."""
    path = ROOT / "hatch_build.py"
    if not path.exists():
        pytest.skip("the build hook is not beside this package")
    spec = importlib.util.spec_from_file_location("hatch_build", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    if module.find_compiler() is None:
        pytest.skip("there is no C compiler")
    return module


@pytest.fixture(scope="session")
def portable(build: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Core:
    """The compiled core as other processors have it, without vector instructions; it compiles without a warning."""
    path = tmp_path_factory.mktemp("portable") / native.LIBRARY.name
    sources = sorted(map(str, native.SOURCES.glob("*.c")))
    strict = ["-U__SSE2__", "-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    subprocess.run([*build.find_compiler(), *build.FLAGS, *strict, *sources, "-o", str(path)], check=True)
    return native_core(path)
