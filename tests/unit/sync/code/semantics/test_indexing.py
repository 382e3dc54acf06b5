"""x[...] read and written."""

from __future__ import annotations

import pytest

from dsv4prof.sync.code.semantics import slice_value, store_subscript, subscript
from dsv4prof.sync.code.values import LIKELY, ON_DEVICE, POSSIBLE, TENSOR, UNKNOWN, Value, constant, sequence, tensor
from sync_values import KNOWN, told, value

UP_TO_T = slice_value(None, KNOWN["t"], None)
FROM_T = slice_value(KNOWN["t"], None, None)
UP_TO_4 = slice_value(None, constant(4), None)
ALL = slice_value(None, None, None)
DOTS = constant(...)


@pytest.mark.parametrize(
    ("receiver", "index", "forms"),
    [
        ("x", "t", ["index-0dim"]),
        ("x", "flag", ["index-0dim-bool"]),
        ("m", (0, "t"), ["index-0dim"]),
        ("x", UP_TO_T, ["slice-bound"]),
        ("x", FROM_T, ["slice-bound"]),
        ("m", (ALL, UP_TO_T), ["slice-bound"]),
        ("x", slice_value(KNOWN["t"], KNOWN["t"], None), ["slice-bound", "slice-bound"]),
        ("x", "mask", ["mask-index"]),
        ("m", (ALL, "mask"), ["mask-index"]),
        ("x", "bytes", ["mask-index-uint8"]),
        ("x", "numbers", ["index-by-list"]),
        ("m", (ALL, "numbers"), ["index-by-list"]),
        ("x", "array", ["index-by-array"]),
        ("x", "cpu_index", ["index-by-host-tensor"]),
        ("any_place", "mask", ["mask-index"]),
        ("unknown", "mask", ["mask-index"]),
        ("unknown", UP_TO_T, ["slice-bound"]),
        ("list", "t", ["host-list-index"]),
        ("list", UP_TO_T, ["host-slice-bound"]),
        ("x", "index", []),
        ("m", ("index", "index"), []),
        ("x", 3, []),
        ("x", -1, []),
        ("x", UP_TO_4, []),
        ("x", slice_value(None, KNOWN["cpu_scalar"], None), []),
        ("x", None, []),
        ("x", "cpu_mask", []),
        ("m", (DOTS, 0), []),
        ("cpu", "cpu_mask", []),
        ("cpu", "numbers", []),
        ("cpu", "cpu_index", []),
        ("unknown", "n", []),
        ("unknown", "unknown", []),
        ("x", "unknown", []),
        ("list", 0, []),
    ],
)
def test_read(receiver: object, index: object, forms: list[str]) -> None:
    assert told(subscript(value(receiver), value(index))) == forms


@pytest.mark.parametrize(
    ("receiver", "index", "written", "forms"),
    [
        ("x", 0, 5, ["assign-element-number"]),
        ("x", -1, 7, ["assign-element-number"]),
        ("x", 0, "cpu_scalar", ["assign-element-number"]),
        ("m", (0, 0), 5, ["assign-element-number"]),
        ("x", "t", 1, ["assign-index-0dim", "assign-element-number"]),
        ("x", "t", "t", ["assign-index-0dim"]),
        ("x", "index", 5, ["assign-index-number"]),
        ("m", ("index", "index"), 0, ["assign-index-number"]),
        ("m", ("index", UP_TO_4), 0, ["assign-index-number"]),
        ("x", "numbers", "t", ["assign-by-list"]),
        ("x", "mask", "t", ["mask-assign"]),
        ("x", "mask", "y", ["mask-assign"]),
        ("m", ("mask", "mask"), 0, ["mask-assign-two-masks"]),
        ("x", UP_TO_4, "cpu", ["assign-from-host"]),
        ("x", UP_TO_T, 0, ["assign-slice-bound"]),
        ("cpu", UP_TO_4, "x", ["assign-to-host"]),
        ("pinned", UP_TO_4, "x", ["assign-to-host"]),
        ("unknown", "mask", "y", ["mask-assign"]),
        ("m", 0, 5, []),
        ("x", "mask", 0, []),
        ("x", "mask", "cpu_scalar", []),
        ("m", (ALL, "mask"), 0, []),
        ("m", ("mask", 0), 0, []),
        ("x", UP_TO_4, 5, []),
        ("x", ALL, 0, []),
        ("x", DOTS, 0, []),
        ("x", "index", "t", []),
        ("x", "index", "y", []),
        ("x", 0, "t", []),
        ("x", UP_TO_4, "y", []),
        ("cpu", 0, 5, []),
        ("cpu", "cpu_mask", 5, []),
        ("list", 0, "x", []),
        ("unknown", 0, 5, []),
        ("unknown", "mask", 5, []),
    ],
)
def test_written(receiver: object, index: object, written: object, forms: list[str]) -> None:
    assert told(store_subscript(value(receiver), value(index), value(written))) == forms


@pytest.mark.parametrize(
    ("index", "forms"), [("mask", ["mask-augmented-assign"]), (0, []), ("index", []), (UP_TO_4, [])]
)
def test_augmented(index: object, forms: list[str]) -> None:
    assert told(store_subscript(KNOWN["x"], value(index), value(1), augmented=True)) == forms


def test_a_number_written_to_one_place_of_unknown_dimensions_is_likely_an_element() -> None:
    (effect,) = store_subscript(tensor(ON_DEVICE, LIKELY), constant(0), constant(0)).effects
    assert (effect.form, effect.level) == ("assign-element-number", LIKELY)


def test_a_fix_is_offered_for_proven_elements_only() -> None:
    (proven,) = store_subscript(KNOWN["x"], constant(0), constant(0)).effects
    (assumed,) = store_subscript(tensor(ON_DEVICE, LIKELY, ndim=1), constant(0), constant(0)).effects
    assert proven.facts == {"receiver": "tensor"}
    assert assumed.facts == {}


def test_dimensions_follow_the_index() -> None:
    cases = [("m", 0, 1), ("m", UP_TO_4, 2), ("m", (0, 0), 0), ("m", (None, 0), 2), ("m", "index", 2), ("x", "mask", 1)]
    for receiver, index, ndim in cases:
        assert subscript(value(receiver), value(index)).value.ndim == ndim, (receiver, index)


def test_a_host_receiver_cannot_have_an_index_on_the_device() -> None:
    assert told(subscript(KNOWN["cpu"], KNOWN["mask"])) == []


def test_what_is_a_tensor_by_name_alone_is_not_told_of_as_likely() -> None:
    named = Value(kinds=TENSOR | UNKNOWN, places=ON_DEVICE, strength=POSSIBLE, dtype="int")
    assert told(subscript(KNOWN["list"], named)) == []
    assert subscript(named, constant(0)).value.kinds & UNKNOWN


def test_a_tuple_of_known_items_gives_the_item() -> None:
    pair = sequence((KNOWN["x"], KNOWN["cpu"]))
    assert subscript(pair, constant(1)).value is KNOWN["cpu"]
