"""What an audit of source is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec


class AuditOptions(msgspec.Struct, frozen=True, kw_only=True):
    """`paths` are files or folders below the root to report on (none: all of it); everything below the root is context.

    `mirrors` are further name globs of host copies, `hot` and `cold` globs on `module:qualname` that add hot roots and
    end the walk from them. `torch_version` decides between forms that changed (None: the newest known). `jobs` is the
    number of processes (0: as many as fit, at most two), `cache_dir` a folder for facts and results of unchanged files.
    `exclude` are globs on relative paths. `sources` replaces files by relative path, as if they were written there
    (None: as if the file were not there). `lines` names for a path the ranges (first, last) of interest: only functions
    that touch one are looked into; a path that is not named is looked into whole. `list_hot` asks for the functions on
    hot paths as well.
    """

    paths: tuple[Path, ...] = ()
    mirrors: tuple[str, ...] = ()
    hot: tuple[str, ...] = ()
    cold: tuple[str, ...] = ()
    torch_version: str | None = None
    jobs: int = 0
    cache_dir: Path | None = None
    exclude: tuple[str, ...] = ()
    sources: Mapping[str, bytes | None] = {}
    lines: Mapping[str, tuple[tuple[int, int], ...]] = {}
    list_hot: bool = False
