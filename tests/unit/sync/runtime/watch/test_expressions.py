"""What a program wrote at an instruction, and which form of the catalogue that is."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

from dsv4prof.sync import catalogue
from dsv4prof.sync.runtime.watch import stacks
from dsv4prof.sync.runtime.watch.expressions import FORMS, Expression, expression_at

pytestmark = pytest.mark.skipif(sys.version_info < (3, 11), reason="instructions have no columns before Python 3.11")


class Asked:
    """Notes where it is asked, as a layer does."""

    def __init__(self) -> None:
        self.found: Expression | None = None

    def _note(self, *_: Any) -> Any:
        frame = sys._getframe(1)
        self.found = expression_at(frame.f_code, frame.f_lasti)
        return 1

    item = _note


def _special(name: str) -> type:
    def asked(self: Any, *_: Any) -> Any:
        frame = sys._getframe(1)
        self.found = expression_at(frame.f_code, frame.f_lasti)
        return {"__bool__": True, "__contains__": True, "__int__": 1, "__format__": ""}.get(name)

    return type("Special", (), {name: asked, "found": None})


CASES: list[tuple[str, Callable[[Any], Any], str, str]] = [
    ("__getitem__", lambda x: x[:3], "__getitem__", "x[:3]"),
    ("__bool__", lambda x: 1 if x else 2, "__bool__", "x"),
    ("__bool__", lambda x: not x, "__bool__", "not x"),
    ("__contains__", lambda x: 3 in x, "__contains__", "3 in x"),
    ("__int__", lambda x: int(x), "__int__", "int(x)"),
    ("__format__", lambda x: f"{x}", "__format__", "{x}"),
]


@pytest.mark.parametrize(("method", "call", "name", "text"), CASES)
def test_special_methods_are_known_by_instruction(
    method: str, call: Callable[[Any], Any], name: str, text: str
) -> None:
    asked: Any = _special(method)()
    call(asked)
    assert asked.found.name == name
    # Where a format specifier begins differs between versions.
    assert text in asked.found.text or asked.found.text in f'f"{text}"'


def test_a_call_over_lines_is_one_text_and_knows_its_method() -> None:
    asked = Asked()
    asked.item(
        1,
        2,
    )
    assert asked.found == Expression("asked.item( 1, 2, )", "item")


def test_a_slice_is_told_from_an_index() -> None:
    sliced, plain = _special("__getitem__")(), _special("__getitem__")()
    sliced[1:, 2]
    plain[1, 2]
    assert (sliced.found.sliced, plain.found.sliced) == (True, False)


def test_source_that_is_gone_tells_nothing() -> None:
    names: dict[str, Any] = {"asked": Asked()}
    exec(compile("asked.item()", "<nowhere>", "exec"), names)
    assert names["asked"].found is None
    assert expression_at(stacks.here().code or test_source_that_is_gone_tells_nothing.__code__, -1) is None


def test_every_form_is_one_of_the_catalogue_that_waits() -> None:
    assert all(catalogue.form(form).syncs for form in FORMS.values())
