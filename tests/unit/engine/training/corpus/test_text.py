"""Texts as they become documents: normalised, tables told from code, functions cut out whole."""

from __future__ import annotations

import ast
from textwrap import dedent

from dsv4_engine.training.corpus.functions import functions_of
from dsv4_engine.training.corpus.text import is_table, normalised

MODULE = dedent('''
    import os

    def plain(a, b=1):
        """Adds. Both."""
        return a + b

    def two_lines():
        return 1

    class Small:
        """A class.

        With more.
        """

        @property
        def value(self) -> int:
            """The value"""

            return self._value

        def undocumented(self):
            self.x = 1
            self.y = 2

        def left(self):
            """Left
    of the indent."""
            return 1

    async def waits(*, timeout: float = 1.0, **rest):
        def inner():
            """Not by itself."""
            return 1
        await inner()
''')


def test_normalised():
    assert normalised("\ufeffa  \r\n\tb\t\r\n\n\n\n\n\nc\rd\n\n", tab=4) == "a\n    b\n\n\nc\nd\n"
    assert normalised("  \tx\ty\n", tab=8) == "        x\ty\n"


def test_tables_are_told_from_code():
    table = "\n".join(
        ["X = {", *(f"    0x{n:02x}: ('a\\'b', -1.5e3, None, b\"c\"),  # name {n}" for n in range(20)), "}"]
    )
    assert is_table(table)
    assert not is_table(MODULE)
    assert not is_table("\n".join(f"# a comment {n}" for n in range(20)))
    assert is_table("x = '" + "a" * 3000 + "'\n")
    assert not is_table("")


def test_functions_are_cut_out_whole():
    found = {function.name: function for function in functions_of(MODULE)}
    # A string that begins left of its method cannot be moved.
    assert set(found) == {"plain", "Small", "value", "waits"}
    for function in found.values():
        tree = ast.parse(function.source)
        assert len(tree.body) == 1 and tree.body[0].name == function.name
        assert function.source.endswith("\n") and not function.source.endswith("\n\n")
    assert found["value"].source.startswith("@property\ndef value(self) -> int:\n    ")
    assert found["plain"].arguments == "a, b=1" and found["Small"].arguments is None
    assert found["waits"].arguments == "*, timeout: float=1.0, **rest"
    assert [found[name].purpose for name in ("plain", "value", "waits")] == ["Adds.", "The value.", ""]


def test_methods_of_a_long_class_stand_alone():
    methods = "\n".join(f"    def m{n}(self):\n        x = {n}\n        return x\n" for n in range(30))
    assert [function.name for function in functions_of(f"class Long:\n{methods}")] == [f"m{n}" for n in range(30)]


def test_what_does_not_parse_has_no_functions():
    assert functions_of("def (") == [] and functions_of("x = '\0'") == []
