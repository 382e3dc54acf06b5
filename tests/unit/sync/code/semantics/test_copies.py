"""Copies, and what may be assumed of them."""

from __future__ import annotations

import pytest

from dsv4prof.sync.code.effects import Args
from dsv4prof.sync.code.semantics import method
from dsv4prof.sync.code.values import (
    CERTAIN,
    HOST_PLACES,
    LIKELY,
    ON_DEVICE,
    PAGEABLE,
    PINNED,
    POSSIBLE,
    TENSOR,
    Value,
    tensor,
)
from sync_values import KNOWN, arguments, told, value


@pytest.mark.parametrize(
    ("receiver", "name", "positional", "keywords", "forms"),
    [
        ("x", "cpu", (), {}, ["cpu-method"]),
        ("any_place", "cpu", (), {}, ["cpu-method"]),
        ("unknown", "cpu", (), {}, ["cpu-method"]),
        ("x", "to", ("host",), {}, ["to-cpu"]),
        ("x", "to", (), {"device": "host"}, ["to-cpu"]),
        ("x", "to", ("cpu",), {}, ["to-cpu-like"]),
        ("x", "to", ("host", "int64"), {}, ["to-cpu"]),
        ("x", "to", ("host", "int64", False), {}, ["to-cpu"]),
        ("x", "type", ("torch.FloatTensor",), {}, ["type-cpu"]),
        ("x", "type_as", ("cpu",), {}, ["to-cpu-like"]),
        ("x", "numpy", (), {"force": True}, ["numpy-force"]),
        ("cpu", "copy_", ("x",), {}, ["copy-to-host"]),
        ("pinned", "copy_", ("x",), {}, ["copy-to-host"]),
        ("cpu", "copy_", ("x",), {"non_blocking": True}, ["copy-to-pageable-nonblocking"]),
        ("strided", "copy_", ("x", True), {}, ["copy-to-strided-pinned-nonblocking"]),
        ("cpu", "to", ("device",), {}, ["to-device"]),
        ("cpu", "to", ("cuda",), {}, ["to-device"]),
        ("cpu", "to", ("x",), {}, ["to-device"]),
        ("pinned", "to", ("device",), {}, ["to-device"]),
        ("cpu", "cuda", (), {}, ["cuda-method"]),
        ("x", "copy_", ("cpu",), {}, ["copy-from-host"]),
        ("x", "copy_", ("cpu_scalar",), {}, ["copy-from-host"]),
        ("strided", "to", ("device",), {"non_blocking": True}, []),
        ("x", "to", ("host",), {"non_blocking": True}, []),
        ("x", "to", ("int64",), {}, []),
        ("x", "to", ("device",), {}, []),
        ("x", "to", ("y",), {}, []),
        ("x", "cuda", (), {}, []),
        ("x", "float", (), {}, []),
        ("x", "numpy", (), {}, []),
        ("cpu", "cpu", (), {}, []),
        ("cpu", "to", ("host",), {}, []),
        ("cpu", "to", ("int64",), {}, []),
        ("cpu", "numpy", (), {}, []),
        ("pinned", "copy_", ("x",), {"non_blocking": True}, []),
        ("pinned", "to", ("device",), {"non_blocking": True}, []),
        ("cpu", "to", ("device",), {"non_blocking": True}, []),
        ("x", "copy_", ("pinned",), {"non_blocking": True}, []),
        ("x", "copy_", ("y",), {}, []),
        ("x", "fill_", ("cpu_scalar",), {}, []),
        ("unknown", "to", ("device",), {}, []),
    ],
)
def test_copy(
    receiver: str, name: str, positional: tuple[object, ...], keywords: dict[str, object], forms: list[str]
) -> None:
    assert told(method(KNOWN[receiver], name, arguments(*positional, **keywords))) == forms


def test_a_copy_lives_where_it_was_copied_to() -> None:
    for receiver, name, positional, place in [
        ("x", "cpu", (), PAGEABLE),
        ("x", "to", ("host",), PAGEABLE),
        ("cpu", "to", ("device",), ON_DEVICE),
        ("cpu", "cuda", (), ON_DEVICE),
        ("cpu", "pin_memory", (), PINNED),
        ("x", "to", ("int64",), ON_DEVICE),
        ("cpu", "to", ("int64",), PAGEABLE),
    ]:
        outcome = method(KNOWN[receiver], name, arguments(*positional))
        assert outcome is not None and outcome.value.places == place, (receiver, name)


def test_a_copy_that_nobody_waited_for_is_a_hazard_when_it_is_read() -> None:
    outcome = method(KNOWN["x"], "to", arguments("host", non_blocking=True))
    assert outcome is not None and outcome.value.pending and outcome.value.places == PINNED
    assert told(method(outcome.value, "tolist", arguments())) == ["nonblocking-copy-read-early"]


def test_whether_a_flag_is_true_decides_only_what_is_possible() -> None:
    outcome = method(KNOWN["x"], "to", arguments("host", non_blocking="n"))
    assert outcome is not None and [effect.level for effect in outcome.effects] == [POSSIBLE]


def test_on_the_host_on_one_path_it_is_copied_on_the_other() -> None:
    mixed = tensor(HOST_PLACES | ON_DEVICE, LIKELY)
    assert told(method(mixed, "cpu", arguments())) == ["cpu-method"]
    assert told(method(mixed, "tolist", arguments())) == ["tolist"]


def test_nothing_is_copied_of_nothing() -> None:
    empty = tensor(ON_DEVICE, LIKELY)
    empty = method(empty, "new_empty", arguments(0)).value  # type: ignore[union-attr]
    assert told(method(empty, "cpu", arguments())) == []
    assert told(method(empty, "tolist", arguments())) == []


def test_pinning_is_told_of() -> None:
    pinned = method(KNOWN["cpu"], "pin_memory", arguments())
    assert pinned is not None and [(e.form, e.level) for e in pinned.effects] == [("pin-memory", POSSIBLE)]
    again = method(pinned.value, "pin_memory", arguments())
    assert again is not None and again.effects == ()


def test_a_value_that_stays_keeps_its_numbers() -> None:
    counts = value(tensor(PAGEABLE, LIKELY, ndim=1, same="lens@3"))
    moved = method(counts, "to", arguments("device", non_blocking=True))
    assert moved is not None and moved.value.same == "lens@3"
    total = method(counts, "sum", arguments())
    assert total is not None
    item = method(total.value, "item", arguments())
    assert item is not None and item.value.total == "lens@3"


@pytest.mark.parametrize(("size", "forms"), [(2 << 20, []), (3 << 20, ["upload-nonblocking-pageable"])])
def test_what_the_driver_cannot_stage_waits(size: int, forms: list[str]) -> None:
    source = Value(kinds=TENSOR, places=PAGEABLE, strength=CERTAIN, dtype="uint8", ndim=1, numel=size)
    assert told(method(KNOWN["x"], "copy_", Args((source, KNOWN["true"])))) == forms
