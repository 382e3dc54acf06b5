from __future__ import annotations

import pytest

from dsv4prof.model.annotation import Annotation, format_annotation, parse_annotation


@pytest.mark.parametrize(
    ("kind", "subject", "fields"),
    [
        ("step", "12", {"kind": "decode", "requests": 4, "rows": 16}),
        ("phase", "target_verify", {"requests": 4, "graph": "eager"}),
        ("span", "attach_prefill_meta", {}),
        ("accepted", "", {"requests": 4, "tokens": 9}),
    ],
)
def test_a_name_survives_the_trace(kind: str, subject: str, fields: dict[str, object]) -> None:
    name = format_annotation(kind, subject, **fields)  # type: ignore[arg-type]
    assert parse_annotation(name) == Annotation(kind, subject, {k: str(v) for k, v in fields.items()})  # type: ignore[arg-type]


def test_characters_that_break_kineto_never_reach_it() -> None:
    name = format_annotation("span", 'a"b\n\x00c', why="x y=z")
    assert name == "dsv4.span a_b_c why=x_y_z"
    assert parse_annotation(name) == Annotation("span", "a_b_c", {"why": "x_y_z"})


@pytest.mark.parametrize("name", ["ProfilerStep#3", "dsv4.stepper", "dsv4.phase", "dsv4.step#x", ""])
def test_names_of_others_are_not_ours(name: str) -> None:
    assert parse_annotation(name) is None


def test_integer_field_refuses_words() -> None:
    annotation = parse_annotation("dsv4.step#1 rows=16 kind=decode")
    assert annotation is not None
    assert annotation.integer("rows") == 16
    assert annotation.integer("kind") is None
    assert annotation.integer("absent") is None
