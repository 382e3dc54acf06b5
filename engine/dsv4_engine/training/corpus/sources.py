"""Where the texts come from: folders of a Python installation, read file by file in a fixed order."""

from __future__ import annotations

import os
import platform
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from dsv4_engine.errors import EngineError
from dsv4_engine.training.corpus.text import decode_python, decode_utf8, normalised

STDLIB, DOCS = "standard library of CPython", "documentation of Python"
LICENCE = "PSF-2.0"
"""Of both sources as a whole; a few files carry notices of their own, which name other licences as free."""

_PAGES = ".rst.txt"
_NOT_STDLIB = frozenset(("site-packages", "dist-packages", "__pycache__", "lib-dynload"))
_TEST_FOLDERS = frozenset(("test", "tests", "idle_test"))
_NOT_TEXT = ("lib2to3/tests/data/", "test/data/", "pydoc_data/", "config-", "_sysconfigdata")
"""Data for tests, generated texts, and what tells how and where this Python was built."""


@dataclass(frozen=True, kw_only=True)
class Sources:
    """stdlib: the folder that holds `os.py`. docs: a folder of reST pages as a documentation package installs them
    (`_sources`), or None for a corpus without prose. Versions are for the manifest alone.
    """

    stdlib: Path
    docs: Path | None = None
    stdlib_version: str = "unknown"
    docs_version: str = "unknown"

    @staticmethod
    def found(stdlib: Path | None = None, docs: Path | None = None) -> Sources:
        """The given folders, else those of the running Python; its documentation may be missing.

        EngineError for a folder that holds no such files.
        """
        own = Path(sysconfig.get_path("stdlib"))
        library = stdlib or own
        if not (library / "os.py").is_file():
            raise EngineError(f"{library} is no standard library: it has no os.py", hint="give another --stdlib")
        pages = docs or _installed_docs()
        if pages is not None and next(pages.rglob(f"*{_PAGES}"), None) is None:
            raise EngineError(f"{pages} holds no pages (*{_PAGES})", hint="give the folder _sources of Python's pages")
        return Sources(
            stdlib=library,
            docs=pages,
            stdlib_version=platform.python_version() if library == own else library.name.removeprefix("python"),
            docs_version=_docs_version(pages),
        )


@dataclass(frozen=True)
class SourceFile:
    """path: relative to the source's folder, forward slashes. kind: code, tests or prose. text: normalised, or None for
    a file that does not decode.
    """

    path: str
    source: str
    kind: str
    text: str | None


def read_sources(sources: Sources) -> Iterator[SourceFile]:
    """Every file that may become a document, the standard library first, each folder in the order of its paths.

    EngineError for a file that cannot be read.
    """
    for path in _paths(sources.stdlib, ".py"):
        if not _NOT_STDLIB.intersection(PurePosixPath(path).parts) and not path.startswith(_NOT_TEXT):
            text = decode_python(_read(sources.stdlib / path))
            kind = "tests" if _is_test(path) else "code"
            yield SourceFile(path, STDLIB, kind, None if text is None else normalised(text, tab=4))
    if sources.docs is not None:
        for path in _paths(sources.docs, _PAGES):
            text = decode_utf8(_read(sources.docs / path))
            yield SourceFile(path, DOCS, "prose", None if text is None else normalised(text, tab=8))


def _paths(folder: Path, suffix: str) -> list[str]:
    def refuse(error: OSError) -> None:
        # By default a folder that cannot be listed is passed over: a smaller corpus, and nobody would know.
        raise EngineError(f"{error.filename} cannot be read: {error.strerror}")

    paths = []
    for root, _, names in os.walk(folder, onerror=refuse):
        paths += [(Path(root) / name).relative_to(folder).as_posix() for name in names if name.endswith(suffix)]
    return sorted(paths)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise EngineError(f"{path} cannot be read: {error.strerror}") from None


def _is_test(path: str) -> bool:
    parts = PurePosixPath(path).parts
    return bool(_TEST_FOLDERS.intersection(parts[:-1])) or parts[-1].startswith("test_")


def _installed_docs() -> Path | None:
    """Where Debian and its kin install them."""
    major, minor, _ = platform.python_version_tuple()
    folder = Path(f"/usr/share/doc/python{major}.{minor}/html/_sources")
    return folder if folder.is_dir() else None


def _docs_version(pages: Path | None) -> str:
    """The newest release that the pages tell news of."""
    news = [] if pages is None else (pages / "whatsnew").glob(f"3.*{_PAGES}")
    numbers = [int(minor) for page in news if (minor := page.name[2:].removesuffix(_PAGES)).isdigit()]
    return f"3.{max(numbers)}" if numbers else "unknown"
