"""Experimental: rank files, untouched, in one TAR with a `perfetto_manifest.json` that puts them on one clock.

Perfetto v58 and later open such a file and apply a machine name and a constant clock offset to each member (the format
is documented at perfetto.dev/docs/reference/perfetto-manifest). No importer that could check it is at hand here: v52
ignores the manifest. Slices that overlap on a row are dropped by it as in the rank files, and drift is not corrected.

A manifest reaches the direct members of an archive and no container inside it, and a gzip file is one: compressed rank
files go in unpacked, their text as it is.
"""

from __future__ import annotations

import tarfile
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
from isal import igzip, isal_zlib

from dsv4prof.errors import InputError, UsageError
from dsv4prof.trace.inflate import GZIP_MAGIC
from dsv4prof.trace.scratch import whole_or_absent

MANIFEST = "perfetto_manifest.json"
VERSION = 1
_MODE = 0o644
_CHUNK = 1 << 20
# A longer name needs an extension of the format that not every reader has.
_LONGEST, _KEPT_HEAD = 100, 60


class TarMember(msgspec.Struct, frozen=True):
    """A rank's file. `offset_ns` is what to add to its own times, which leave out its base time, on the common axis.

    Its rows appear under `machine`; ranks need different ones, or their process numbers are taken for the same.
    """

    path: Path
    machine: str
    offset_ns: int = 0


def manifest(members: Sequence[TarMember]) -> bytes:
    """The manifest's text: the first file's own axis is the common one. Raises UsageError for equal names."""
    names = [_name(member.path) for member in members]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(f"two files are called {twice[0]}", hint="a .tar needs different file names; rename one")
    files: list[dict[str, Any]] = []
    for place, member in enumerate(members):
        entry: dict[str, Any] = {"path": names[place], "machine": {"name": member.machine}}
        if place:
            entry["clocks"] = {
                "sync_to": {"file": names[0]},
                "offset_ns": member.offset_ns - members[0].offset_ns,
            }
        files.append(entry)
    # The importer knows a manifest by its first characters, which must be these.
    content = msgspec.json.encode({"perfetto_manifest": {"version": VERSION, "files": files}})
    return msgspec.json.format(content, indent=1)


def write_tar(members: Sequence[TarMember], path: str | Path) -> Path:
    """Write `path` at once or not at all: the manifest, then each file's text. Equal input gives equal bytes.

    Raises InputError when a file cannot be read, OutputError when the folder cannot be written, and UsageError when
    there is nothing to write or two files have one name.
    """
    path = Path(path)
    if not members:
        raise UsageError("there is no file to pack", hint="name rank files")
    head = manifest(members)
    with whole_or_absent(path) as part, tarfile.open(part, mode="x", format=tarfile.USTAR_FORMAT) as tar:
        tar.addfile(_entry(MANIFEST, len(head)), BytesIO(head))
        for member in members:
            _add(tar, member)
    return path


def _add(tar: tarfile.TarFile, member: TarMember) -> None:
    """The size comes before the text, so that a compressed file is read twice and never held."""
    try:
        with _opened(member.path) as source:
            size = sum(map(len, iter(lambda: source.read(_CHUNK), b"")))
        text = _opened(member.path)
    except (OSError, EOFError, isal_zlib.error) as error:  # type: ignore[misc]  # isal has no stubs
        raise InputError(
            f"cannot read {member.path}: {error}", hint="check the path; a damaged file can be merged, not packed"
        ) from error
    with text:
        tar.addfile(_entry(_name(member.path), size), text)


def _opened(path: Path) -> BinaryIO:
    with path.open("rb") as file:
        compressed = file.read(len(GZIP_MAGIC)) == GZIP_MAGIC
    return igzip.open(path, "rb") if compressed else path.open("rb")


def _name(path: Path) -> str:
    name = path.name.removesuffix(".gz")
    text = name.encode()
    if len(text) <= _LONGEST:
        return name
    return text[:_KEPT_HEAD].decode(errors="ignore") + "~" + text[_KEPT_HEAD + 1 - _LONGEST :].decode(errors="ignore")


def _entry(name: str, size: int) -> tarfile.TarInfo:
    """Nothing of the machine or the day goes into the file."""
    info = tarfile.TarInfo(name)
    info.size, info.mode = size, _MODE
    return info
