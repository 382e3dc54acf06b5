"""Python's operators, truth, iteration and unpacking."""

from __future__ import annotations

import pytest

from dsv4prof.sync.code.semantics import binary, compare, format_value, iterate, truth, unary, unpack
from dsv4prof.sync.code.values import HOST, ON_DEVICE, PAGEABLE, TENSOR, mapping_of, sequence
from sync_values import KNOWN, told, value


@pytest.mark.parametrize(
    ("op", "left", "right", "forms"),
    [
        ("in", "t", "numbers", ["truth-contains"]),
        ("in", 3, "x", ["truth-contains"]),
        ("in", 3, "tensors", ["truth-contains"]),
        ("not in", "t", "list", ["truth-contains"]),
        ("is", "x", "none", []),
        ("is not", "x", "y", []),
        ("==", "x", "y", []),
        ("==", "x", None, []),
        ("<", "t", 3, []),
        ("in", "n", "list", []),
        ("in", "x", "unknown", []),
    ],
)
def test_compared(op: str, left: object, right: object, forms: list[str]) -> None:
    assert told(compare(op, value(left), value(right))) == forms


@pytest.mark.parametrize(
    ("op", "left", "right", "forms"),
    [
        ("*", "numbers", "t", ["list-repeat"]),
        ("*", "t", "numbers", ["list-repeat"]),
        ("%", "%s", "x", ["format-percent"]),
        ("+", "x", "n", []),
        ("*", "n", "x", []),
        ("@", "m", "m", []),
        ("**", "x", "t", []),
        ("%", "t", 7, []),
        ("+", "numbers", "numbers", []),
        ("*", "numbers", "n", []),
    ],
)
def test_combined(op: str, left: object, right: object, forms: list[str]) -> None:
    assert told(binary(op, value(left), value(right))) == forms


def test_the_result_is_where_the_operands_are() -> None:
    cases = [("x", "n", ON_DEVICE), ("cpu", "cpu", PAGEABLE), ("x", "cpu_scalar", ON_DEVICE), ("n", "x", ON_DEVICE)]
    for left, right, place in cases:
        outcome = binary("+", KNOWN[left], KNOWN[right])
        assert outcome.value.kinds == TENSOR and outcome.value.places == place
    # What was copied to the host cannot be mixed with a device tensor: the other one is on the host too.
    assert binary("-", KNOWN["cpu"], KNOWN["any_place"]).value.places == PAGEABLE


def test_comparisons_make_masks() -> None:
    assert compare(">", KNOWN["x"], KNOWN["n"]).value.dtype == "bool"
    assert binary("&", KNOWN["mask"], KNOWN["mask"]).value.dtype == "bool"
    assert unary("~", KNOWN["mask"]).value.dtype == "bool"


def test_numbers_are_computed() -> None:
    assert binary("*", value(6), value(7)).value.const == 42
    assert binary("//", value(1), value(0)).value.kinds == HOST
    assert unary("-", value(3)).value.const == -3


@pytest.mark.parametrize(
    ("context", "form"),
    [
        ("condition", "truth-condition"),
        ("assert", "truth-assert"),
        ("and-or", "truth-and-or"),
        ("conversion", "truth-conversion"),
    ],
)
def test_truth(context: str, form: str) -> None:
    assert [effect.form for effect in truth(KNOWN["t"], context)] == [form]
    for name in ("n", "none", "cpu", "list", "unknown", "array"):
        assert truth(KNOWN[name], context) == ()
    assert told(unary("not", KNOWN["t"])) == ["truth-not"]


def test_text() -> None:
    assert [effect.form for effect in format_value(KNOWN["t"])] == ["format-fstring"]
    assert [effect.form for effect in format_value(KNOWN["tensors"])] == ["format-fstring"]
    assert [effect.form for effect in format_value(mapping_of(KNOWN["x"]))] == ["format-fstring"]
    for name in ("n", "cpu", "list", "unknown"):
        assert format_value(KNOWN[name]) == ()


def test_a_tensor_is_iterated_in_views() -> None:
    assert iterate(KNOWN["x"]).effects == ()
    assert (iterate(KNOWN["x"]).value.ndim, iterate(KNOWN["x"]).value.places) == (0, ON_DEVICE)
    assert iterate(KNOWN["list"]).value.kinds == HOST


def test_unpacking() -> None:
    pair = sequence((KNOWN["x"], KNOWN["n"]))
    assert unpack(pair, 2).value.items == pair.items
    parts = unpack(KNOWN["x"], 3).value.items
    assert parts is not None and len(parts) == 3 and parts[0].ndim == 0
