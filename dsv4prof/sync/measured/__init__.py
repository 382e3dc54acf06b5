"""Which calls make the host wait, as measured on devices: the cases, the shipped measurements, and their files.

A file is JSON lines. The first line holds `meta`: format, versions, device, and the prelude that every case runs first.
Each other line is a case with what was seen of it. Nothing here needs torch.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

import msgspec

from dsv4prof.errors import InputError

FORMAT = "dsv4prof.truth/1"
CASES_FORMAT = "dsv4prof.truth-cases/1"
_FOLDER = Path(__file__).parent
_CASES = "cases.jsonl"
_Row = TypeVar("_Row", bound=msgspec.Struct)


class Case(msgspec.Struct, kw_only=True, omit_defaults=True):
    """A call to measure. `setup` runs before the clock starts and `after` when it has stopped.

    Names that both may use: torch, np, F, math, io, pickle, copy, operator, logging, dist, `dev` (the device), and
    `pin(t)`, a pinned copy. `needs`: "cuda" (torch.cuda's own functions), "pin", "nccl" (a group of one rank), or "".
    """

    id: str
    call: str
    kind: str = ""
    setup: str = ""
    after: str = ""
    needs: str = ""
    why: str = ""


class Measurement(Case, kw_only=True, omit_defaults=False):
    """What a case did. `syncs`: it did not return before a kernel queued ahead of it had ended; None with `error`.

    `slow_ms` is its longest host time behind that kernel. `warned` counts the warnings of set_sync_debug_mode.
    `runtime_sync`, `memcpy` and `cuda_sync` count what Kineto recorded, `waited_ms` names the runtime calls that took
    over a millisecond, `ops` are the aten operators in order.
    """

    syncs: bool | None = None
    slow_ms: float | None = None
    warned: int = 0
    runtime_sync: dict[str, int] = {}
    memcpy: dict[str, int] = {}
    cuda_sync: dict[str, int] = {}
    waited_ms: dict[str, float] = {}
    ops: list[str] = []
    note: str = ""
    error: str = ""


class Meta(msgspec.Struct, kw_only=True):
    """Where and when a file was measured. `hip` is None on CUDA, `cuda` on ROCm; `sleep_ms` is the kernel's length."""

    format: str = FORMAT
    prelude: str = ""
    torch: str = ""
    cuda: str | None = None
    hip: str | None = None
    device: str = ""
    arch: str = ""
    python: str = ""
    sleep_ms: float = 0.0
    measured: str = ""
    dsv4prof: str = ""

    @property
    def vendor(self) -> str:
        return "rocm" if self.hip else "cuda"


class Truth(msgspec.Struct):
    """A file of measurements."""

    meta: Meta
    rows: list[Measurement]

    def by_id(self) -> dict[str, Measurement]:
        return {row.id: row for row in self.rows}


class CaseFile(msgspec.Struct):
    """A file of cases that nobody has measured yet."""

    meta: Meta
    cases: list[Case]


class _Head(msgspec.Struct):
    meta: Meta


def shipped() -> list[Path]:
    """The measurements in this package, oldest name first."""
    return sorted(path for path in _FOLDER.glob("*.jsonl") if path.name != _CASES)


def cases(path: Path | None = None) -> CaseFile:
    """The cases of a file (default: those of this package). A file of measurements serves as one. Raises InputError."""
    meta, lines = _read(path or _FOLDER / _CASES)
    return CaseFile(meta, [_decoded(line, Case, path or _FOLDER / _CASES) for line in lines])


def read(path: Path) -> Truth:
    """The measurements of a file, also of one written before the format had a name. Raises InputError."""
    meta, lines = _read(path)
    if meta.format != FORMAT:
        raise InputError(f"{path} holds no measurements, but {meta.format}", hint="dsv4prof truth measure makes some")
    return Truth(meta, [_decoded(line, Measurement, path) for line in lines])


def write(path: Path, truth: Truth) -> None:
    """All of it as JSON lines. Raises OSError."""
    path.write_bytes(encoded(_Head(truth.meta), *truth.rows))


def encoded(*rows: msgspec.Struct) -> bytes:
    """One JSON line a row."""
    return b"".join(msgspec.json.encode(row) + b"\n" for row in rows)


def head(meta: Meta) -> msgspec.Struct:
    """The first line of a file."""
    return _Head(meta)


def _read(path: Path) -> tuple[Meta, list[bytes]]:
    try:
        first, *lines = path.read_bytes().splitlines() or [b""]
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror or error}", hint="name a .jsonl file") from error
    meta = _decoded(first, _Head, path).meta
    if meta.format not in (FORMAT, CASES_FORMAT):
        raise InputError(f"{path} has the unknown format {meta.format!r}", hint="a newer dsv4prof may read it")
    return meta, [line for line in lines if line.strip()]


def _decoded(line: bytes, kind: type[_Row], path: Path) -> _Row:
    try:
        return msgspec.json.decode(line, type=kind)
    except msgspec.DecodeError as error:
        raise InputError(
            f"{path} is no file of measured cases: {error}", hint="dsv4prof truth measure makes one"
        ) from (error)


__all__ = [
    "CASES_FORMAT",
    "FORMAT",
    "Case",
    "CaseFile",
    "Measurement",
    "Meta",
    "Truth",
    "cases",
    "encoded",
    "head",
    "read",
    "shipped",
    "write",
]
