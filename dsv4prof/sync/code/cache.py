"""Facts of unchanged files, and results when nothing changed at all: one file a root, replaced whole.

Whatever cannot be read as what this version wrote is as good as not there.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
import time
from pathlib import Path

import msgspec

from dsv4prof import __version__
from dsv4prof.sync.code import files
from dsv4prof.sync.code.facts import Module
from dsv4prof.sync.code.found import Found, Problem
from dsv4prof.sync.code.options import AuditOptions

# Raised whenever facts or results of an unchanged file may differ from what an older version of this package wrote.
_FORM = 2
_MOST_FILES = 16
_DIGEST = 32
_SHORTLY_NS = 2_000_000_000
_AS_IT_LIES = AuditOptions()


class Held(msgspec.Struct, array_like=True):
    """The facts of one file, the digest of its content, and what `stat` said when it was read."""

    digest: bytes
    changed_ns: int
    size: int
    module: Module


class Pack(msgspec.Struct):
    """Facts by relative path, when they were taken, and the results of one state of the whole project."""

    modules: dict[str, Held] = {}
    taken_ns: int = 0
    state: bytes = b""
    results: dict[str, tuple[list[Found], list[Problem]]] = {}


class Shelf:
    """The stored facts of one root for one audit after another; without a folder it holds nothing and forgets all."""

    def __init__(self, root: Path, options: AuditOptions) -> None:
        self._root = root
        self._place = location(options.cache_dir, root) if options.cache_dir is not None else None
        self._pack = load(self._place) if self._place is not None else Pack()
        self._keys: dict[str, tuple[bytes, int, int]] = {}
        self._state = b""
        self._changed = False
        self.known: dict[str, Module] = {}

    def look(self, paths: list[str], options: AuditOptions) -> None:
        """Which of the paths are as they were: `known` then holds their facts."""
        self.known = {}
        if self._place is None:
            return
        self._taken_ns = time.time_ns()
        self._keys = {path: key for path in paths if (key := self._key(path, options)) is not None}
        held = self._pack.modules
        self.known = {path: held[path].module for path, key in self._keys.items() if _is_same(held.get(path), key[0])}

    def outside(self, path: str, options: AuditOptions) -> Module | None:
        """The facts of a file outside the root, where they are still true."""
        key = self._key(path, options) if self._place is not None else None
        if key is None:
            return None
        self._keys[path] = key
        held = self._pack.modules.get(path)
        return held.module if held is not None and held.digest == key[0] else None

    def _key(self, path: str, options: AuditOptions) -> tuple[bytes, int, int] | None:
        """Digest, time of change and size. A file that `stat` calls unchanged is not read again, unless it was written
        so shortly before it was read last that another write could have left the same time."""
        try:
            replaced = options.sources.get(path)
            if replaced is not None:
                return digest(replaced), 0, len(replaced)
            stat = files.place(self._root, path).stat()
            held = self._pack.modules.get(path)
            if (
                held is not None
                and (held.changed_ns, held.size) == (stat.st_mtime_ns, stat.st_size)
                and stat.st_mtime_ns < self._pack.taken_ns - _SHORTLY_NS
            ):
                return held.digest, held.changed_ns, held.size
            return digest(files.read(self._root, path, options)), stat.st_mtime_ns, stat.st_size
        except OSError:
            return None

    def results(self, asked: bytes) -> dict[str, tuple[list[Found], list[Problem]]]:
        """What was found when every file and option was the same; nothing else can be taken over."""
        if self._place is None:
            return {}
        parts = (
            part for path in sorted(self._keys) for part in (path.encode(errors="surrogateescape"), self._keys[path][0])
        )
        self._state = digest(*parts, asked)
        same = self._pack.state == self._state and all(
            _is_same(held, key[0] if (key := self._key(path, _AS_IT_LIES)) is not None else b"")
            for path, held in self._pack.modules.items()
            if path.startswith("../")
        )
        return dict(self._pack.results) if same else {}

    def keep(self, modules: dict[str, Module], results: dict[str, tuple[list[Found], list[Problem]]] | None) -> None:
        """Take over the facts of the files as they lie there, and the results unless they are of a part (None)."""
        if self._place is None:
            return
        held = {path: Held(*key, modules[path]) for path, key in self._keys.items() if path in modules}
        same = self._state == self._pack.state
        if results is None:
            results = self._pack.results if same else {}
        self._changed = not same or len(results) > len(self._pack.results) or held.keys() != self._pack.modules.keys()
        self._pack = Pack(held, self._taken_ns, self._state, results)

    def store(self) -> None:
        if self._place is not None and self._changed:
            store(self._place, self._pack)


def _is_same(held: Held | None, key: bytes) -> bool:
    return held is not None and held.digest == key


def digest(*parts: bytes) -> bytes:
    """A digest of the parts in order."""
    made = hashlib.blake2b(digest_size=_DIGEST)
    for part in parts:
        made.update(len(part).to_bytes(8, "big"))
        made.update(part)
    return made.digest()


def location(folder: Path, root: Path) -> Path:
    """The file of one root, one Python and one version of this package."""
    parts = __version__, str(_FORM), str(sys.version_info[:2]), _own_state()
    name = os.fsencode(root.resolve()) + "|".join(parts).encode()
    return folder / f"{hashlib.blake2b(name, digest_size=12).hexdigest()}.pack"


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
