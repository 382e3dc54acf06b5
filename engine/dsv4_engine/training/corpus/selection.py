"""Which files become documents: whole ones that say something, each once, and of tests a bounded part."""

from __future__ import annotations

import ast
import warnings
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dsv4_engine.training.corpus.sources import SourceFile
from dsv4_engine.training.corpus.stable import is_held_out, stable_number
from dsv4_engine.training.corpus.text import is_table

MOST_TEST_BYTES = 4_000_000

_SHORTEST = 200
_TELLING_LINE = 25
_FEWEST_TELLING_LINES = 5
_COPY_SHARE = 0.7
_KNOWN_SHARE = 0.5


@dataclass(frozen=True)
class Chosen:
    """One file of the corpus."""

    path: str
    source: str
    kind: str
    text: str

    @property
    def held_out(self) -> bool:
        return is_held_out(self.path)

    @property
    def num_bytes(self) -> int:
        return len(self.text.encode("utf-8"))


@dataclass(frozen=True)
class Selection:
    """files: in the order of the sources. left_out: how many were not taken, by reason."""

    files: tuple[Chosen, ...]
    left_out: dict[str, int]


def select(files: Iterable[SourceFile]) -> Selection:
    """Held-out files come first where copies are looked for, so that what is dropped is training's copy of them."""
    left_out: Counter[str] = Counter()
    candidates: list[Chosen] = []
    for file in files:
        reason = _unfit(file)
        if reason is None and file.text is not None:
            candidates.append(Chosen(file.path, file.source, file.kind, file.text))
        else:
            left_out[str(reason)] += 1
    by_split = sorted(candidates, key=lambda file: not file.held_out)
    originals = _without_copies(by_split)
    left_out["copy of another"] += len(candidates) - len(originals)
    bounded = _bounded(originals)
    left_out["tests beyond the limit"] += len(originals) - len(bounded)
    unknown = _without_known(bounded)
    left_out["held out, but told in training"] += len(bounded) - len(unknown)
    taken = {(file.source, file.path) for file in unknown}
    chosen = tuple(file for file in candidates if (file.source, file.path) in taken)
    return Selection(chosen, {reason: count for reason, count in sorted(left_out.items()) if count})


def _unfit(file: SourceFile) -> str | None:
    if file.text is None:
        return "does not decode"
    if len(file.text) < _SHORTEST:
        return "too short"
    if is_table(file.text):
        return "table of literals"
    if file.kind != "prose" and not _parses(file.text):
        return "does not parse"
    return None


def _parses(text: str) -> bool:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # invalid escapes, in tests of them
            ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return True


def _without_copies(files: Sequence[Chosen]) -> list[Chosen]:
    """Those that are not, in most of their telling lines, what files before them said already."""
    texts: set[str] = set()
    lines: set[str] = set()
    originals = []
    for file in files:
        own = _telling_lines(file)
        is_copy = len(own) >= _FEWEST_TELLING_LINES and len(own & lines) > _COPY_SHARE * len(own)
        if file.text in texts or is_copy:
            continue
        texts.add(file.text)
        lines |= own
        originals.append(file)
    return originals


def _without_known(files: Sequence[Chosen]) -> list[Chosen]:
    """All but held-out files that stand in training's for the most part, within larger ones that are no copies."""
    told = set().union(*(_telling_lines(file) for file in files if not file.held_out))
    kept = []
    for file in files:
        own = _telling_lines(file)
        if not file.held_out or len(own & told) <= _KNOWN_SHARE * len(own):
            kept.append(file)
    return kept


def _telling_lines(file: Chosen) -> set[str]:
    """Those that are long enough to be nobody else's by chance."""
    return {line.strip() for line in file.text.split("\n") if len(line.strip()) >= _TELLING_LINE}


def _bounded(files: Sequence[Chosen]) -> list[Chosen]:
    """All but the tests that come last in an order by chance, once MOST_TEST_BYTES are reached."""
    tests = sorted((file for file in files if file.kind == "tests"), key=lambda file: stable_number(file.path))
    kept, size = [file for file in files if file.kind != "tests"], 0
    for file in tests:
        size += file.num_bytes
        if size > MOST_TEST_BYTES:
            break
        kept.append(file)
    return kept
