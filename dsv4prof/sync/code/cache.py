"""Facts of unchanged files, and results when nothing changed at all: one file a root, replaced whole.

Whatever cannot be read as what this version wrote is as good as not there.
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
from pathlib import Path

import msgspec
import platformdirs

from dsv4prof import __version__
from dsv4prof.sync.code.facts import Module
from dsv4prof.sync.code.found import Found, Problem

# Raised whenever facts or results of an unchanged file may differ from what an older version of this package wrote.
_FORM = 1
_MOST_FILES = 16
_DIGEST = 32


class Pack(msgspec.Struct):
    """Facts by relative path with the digest of the content, and the results of one state of the whole project."""

    modules: dict[str, tuple[bytes, Module]] = {}
    state: bytes = b""
    results: dict[str, tuple[list[Found], list[Problem]]] = {}


def default_folder() -> Path:
    """Where facts are kept unless somebody says otherwise."""
    return Path(platformdirs.user_cache_dir("dsv4prof")) / "audit"


def digest(*parts: bytes) -> bytes:
    """A digest of the parts in order."""
    made = hashlib.blake2b(digest_size=_DIGEST)
    for part in parts:
        made.update(len(part).to_bytes(8, "big"))
        made.update(part)
    return made.digest()


def location(folder: Path, root: Path) -> Path:
    """The file of one root, one Python and one version of this package."""
    name = f"{root.resolve()}|{__version__}|{_FORM}|{sys.version_info[:2]}|{_own_state()}"
    return folder / f"{hashlib.blake2b(name.encode(), digest_size=12).hexdigest()}.pack"


def _own_state() -> str:
    """Changes with every edit of the rules themselves, in a checkout where the version stays the same."""
    here = Path(__file__).parent
    own = sorted([*here.rglob("*.py"), *(here.parent / "catalogue").glob("*.py")])
    return ";".join(f"{path.name}{path.stat().st_size}{path.stat().st_mtime_ns}" for path in own)


def load(path: Path) -> Pack:
    """What was stored; an empty pack when there is nothing, or nothing whole."""
    try:
        data = path.read_bytes()
        if digest(data[_DIGEST:]) != data[:_DIGEST]:
            return Pack()
        return msgspec.msgpack.decode(data[_DIGEST:], type=Pack)
    except (OSError, msgspec.MsgspecError):
        return Pack()


def store(path: Path, pack: Pack) -> None:
    """Writes it whole or not at all; a folder that cannot be written is no error: the next run is slower."""
    payload = msgspec.msgpack.encode(pack)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=path.parent, prefix=".", delete=False) as file:
            file.write(digest(payload) + payload)
        Path(file.name).replace(path)
        _bound(path.parent)
    except OSError:
        return


def _bound(folder: Path) -> None:
    packs = sorted(folder.glob("*.pack"), key=lambda pack: pack.stat().st_mtime, reverse=True)
    for pack in packs[_MOST_FILES:]:
        pack.unlink(missing_ok=True)
