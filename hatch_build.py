"""Build hook of hatchling: compiles the trace core where there is a C compiler; without one the package is pure Python.

    python hatch_build.py

does the same by hand, in place, for a checkout that is used without installing it.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # by hand
    BuildHookInterface = object

PLACE = Path("dsv4prof", "trace", "core", "csrc", "libdsv4core.so")
SOURCES = PLACE.parent
FLAGS = ["-O3", "-fPIC", "-shared", "-std=c11", "-fvisibility=hidden"]
NAMES = ("cc", "gcc", "clang")


# By hand hatchling is not there, and the base is a plain class.
class CustomBuildHook(BuildHookInterface):  # type: ignore[misc,valid-type]
    """Puts the compiled core into a wheel, or beside its sources for an editable install."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if self.target_name != "wheel":
            return
        root = Path(self.root)
        if version == "editable":
            say(compile_core(root, root / PLACE))
            return
        self._scratch = tempfile.mkdtemp()
        library = Path(self._scratch, PLACE.name)
        fault = compile_core(root, library)
        say(fault)
        if fault is None:
            build_data["force_include"][str(library)] = PLACE.as_posix()
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{platform()}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if scratch := getattr(self, "_scratch", None):
            shutil.rmtree(scratch, ignore_errors=True)


def platform() -> str:
    """The wheel tag's part for this machine. The library asks nothing of Python, only of the C library."""
    return sysconfig.get_platform().replace("-", "_").replace(".", "_")


def compile_core(root: Path, library: Path) -> str | None:
    """Compile the sources under `root` to `library`, whole or not at all. Returns why that failed, or None."""
    compiler = find_compiler()
    if compiler is None:
        return "there is no C compiler"
    files = sorted((root / SOURCES).glob("*.[ch]"))
    stamp = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]
    sources = [str(file) for file in files if file.suffix == ".c"]
    temporary = library.with_name(f".{library.name}.{os.getpid()}")
    command = [*compiler, *FLAGS, f'-DDSV4_STAMP="{stamp}"', *sources, "-o", str(temporary)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=300)
        if done.returncode:
            return f"{compiler[0]} fails: {(done.stderr.strip() or str(done.returncode)).splitlines()[0]}"
        # A process that uses the old library keeps it: the file is replaced, not written into.
        temporary.replace(library)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{compiler[0]} fails: {error}"
    finally:
        temporary.unlink(missing_ok=True)
    return None


def find_compiler() -> list[str] | None:
    """$CC with its options, or the first usual name on the path."""
    if given := shlex.split(os.environ.get("CC", "")):
        return given if shutil.which(given[0]) else None
    return next(([path] for name in NAMES if (path := shutil.which(name))), None)


def say(fault: str | None) -> None:
    if fault is not None:
        print(f"dsv4prof: the trace core is not compiled ({fault}); traces are read in Python", file=sys.stderr)


if __name__ == "__main__":
    here = Path(__file__).resolve().parent
    failed = compile_core(here, here / PLACE)
    say(failed)
    sys.exit(failed is not None)
