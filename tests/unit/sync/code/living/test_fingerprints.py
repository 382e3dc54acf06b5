"""Fingerprints outlive edits round a statement and tell different ones apart."""

from __future__ import annotations

import ast

from dsv4prof.sync.code.living.fingerprints import Fingerprint, Identity, fingerprints

BASE = Identity(code="DSV101", path="a/b.py", function="Backend.forward", text="x.item()")


def made(*identities: Identity) -> list[Fingerprint]:
    return fingerprints(identities)


def changed(**fields: str) -> Identity:
    return Identity(**{**{name: getattr(BASE, name) for name in BASE.__struct_fields__}, **fields})


def test_each_part_counts() -> None:
    variants = [
        BASE,
        changed(code="DSV102"),
        changed(path="a/c.py"),
        changed(function="Backend.step"),
        changed(text="y.item()"),
    ]
    assert len({each.whole for each in made(*variants)}) == len(variants)


def test_formatting_does_not_count() -> None:
    texts = ["f( x ,\n   y )  # why", "f(x, y)"]
    plain = [changed(text=ast.unparse(ast.parse(text, mode="eval"))) for text in texts]
    assert made(plain[0]) == made(plain[1])


def test_equal_statements_of_a_function_are_told_apart_by_their_order() -> None:
    first, second = made(BASE, BASE)
    assert first.whole != second.whole
    assert first.moved != second.moved
    assert made(BASE)[0] == first
    other = made(changed(function="g"), BASE)[1]
    assert other == first, "the ordinal counts within the function alone"


def test_a_function_that_moves_keeps_its_second_part() -> None:
    (home,), (away,) = made(BASE), made(changed(path="z.py", function="Other.Inner.forward"))
    assert home.whole != away.whole
    assert home.moved == away.moved


def test_text_that_is_no_unicode_has_a_fingerprint() -> None:
    assert made(changed(text="x['\udce4'].item()"))[0].whole
