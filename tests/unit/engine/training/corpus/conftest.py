"""A made-up installation: a standard library and pages of documentation, of a few hundred small files."""

from __future__ import annotations

from pathlib import Path

import pytest

from dsv4_engine.training.corpus import Sources

MODULES, PAGES = 150, 150


def module(number: int) -> str:
    """Every line of it names its number, so that whose text something is can be told."""
    return f'''"""Things of module {number}, which count what has to be counted."""

import thing{number}


class Counter{number}:
    """Counts to {number}."""

    start{number} = {number}

    def count_{number}(self, upto=thing{number}.LIMIT):
        """Return numbers of module {number} up to a limit. Ends there."""
        for value{number} in range(upto):
            yield value{number} + self.start{number}


@thing{number}.cached
def total_{number}(values, *, start={number}):
    """Add the values of module {number} up."""
    result{number} = start
    for value{number} in values:
        result{number} += value{number}
    return result{number}
'''


def page(number: int) -> str:
    lines = [f"Sentence {line} of page {number} says nothing new about {number * 31 + line}." for line in range(6)]
    return f"Page {number}\n=========\n\n" + "\n".join(lines) + "\n"


def write(path: Path, text: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)


@pytest.fixture(scope="session")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Sources:
    folder = tmp_path_factory.mktemp("installation")
    stdlib, docs = folder / "python3.99", folder / "_sources"
    write(stdlib / "os.py", module(9999))
    for number in range(MODULES):
        write(stdlib / f"pack{number % 7}" / f"mod{number}.py", module(number))
        write(stdlib / "test" / f"test_mod{number}.py", module(1000 + number))
    for number in range(PAGES):
        write(docs / "library" / f"page{number}.rst.txt", page(number))
    write(docs / "whatsnew" / "3.98.rst.txt", page(5000))
    write(docs / "whatsnew" / "3.9.rst.txt", page(5001))
    write(stdlib / "site-packages" / "foreign.py", module(7000))
    write(stdlib / "config-3.99-machine" / "python-config.py", module(7002))
    write(stdlib / "lib2to3" / "tests" / "data" / "old.py", module(7001))
    write(stdlib / "latin.py", b"# -*- coding: latin-1 -*-\r\n" + b"name = '\xe9'\t \r\n" + module(8000).encode())
    write(stdlib / "broken.py", b"name = '\xff'\n" + module(8001).encode())
    write(stdlib / "unfinished.py", module(8002) + "def (\n")
    write(
        stdlib / "table.py", "TABLE = {\n" + "".join(f"    {n}: ('x{n}', 0x{n:x}),  # {n}\n" for n in range(99)) + "}\n"
    )
    write(stdlib / "tiny.py", "x = 1\n")
    write(stdlib / "zcopy.py", module(9999) + "\n\nadded = True\n")
    return Sources.found(stdlib, docs)
