"""Methods, by what is known of the receiver."""

from __future__ import annotations

import pytest

from dsv4prof.sync.code.semantics import assumed, attribute, method
from dsv4prof.sync.code.values import (
    DEVICE,
    HOST,
    LIKELY,
    OBJECT,
    ON_DEVICE,
    PAGEABLE,
    POSSIBLE,
    SEQUENCE,
    TENSOR,
    Value,
)
from sync_values import KNOWN, arguments, told

LOGGER = Value(kinds=OBJECT, ref="logging.Logger")


@pytest.mark.parametrize(
    ("receiver", "name", "positional", "forms"),
    [
        ("t", "item", (), ["item"]),
        ("x", "tolist", (), ["tolist"]),
        ("mask", "nonzero", (), ["nonzero"]),
        ("x", "masked_fill_", ("mask", "t"), ["masked-fill-tensor"]),
        ("x", "index_fill_", (0, "index", "t"), ["index-fill-tensor"]),
        ("x", "index_put_", (("mask",), "t"), ["index-put-mask"]),
        ("x", "index_put_", (("index",), "cpu_scalar"), ["index-put-host-value"]),
        ("x", "new_tensor", ("numbers",), ["new-tensor"]),
        ("x", "view", ("t", -1), ["view-size"]),
        ("x", "repeat", ("t",), ["view-size"]),
        ("x", "topk", ("t",), ["count-parameter"]),
        ("x", "new_zeros", ("t",), ["factory-size"]),
        ("x", "equal", ("y",), ["torch-equal"]),
        ("m", "to_sparse", (), ["to-sparse"]),
        ("x", "masked_fill_", ("mask", 0.0), []),
        ("x", "masked_fill", ("mask", "cpu_scalar"), []),
        ("x", "index_put_", (("index",), "t"), []),
        ("x", "fill_", ("t",), []),
        ("x", "sum", (), []),
        ("mask", "any", (), []),
        ("x", "scatter_", (0, "index", 1.0), []),
        ("x", "numel", (), []),
        ("x", "size", (0,), []),
        ("x", "record_stream", ("unknown",), []),
        ("cpu", "tolist", (), []),
        ("array", "tolist", (), []),
        ("cpu", "item", (), []),
        ("n", "item", (), []),
        ("unknown", "item", (), []),
        ("unknown", "tolist", (), []),
        ("unknown", "split", (",",), []),
        ("list", "copy", (), []),
    ],
)
def test_method(receiver: str, name: str, positional: tuple[object, ...], forms: list[str]) -> None:
    assert told(method(KNOWN[receiver], name, arguments(*positional))) == forms


def test_a_wholly_unknown_receiver_is_told_of_as_possible() -> None:
    for name in ("item", "tolist"):
        outcome = method(KNOWN["unknown"], name, arguments())
        assert outcome is not None and [effect.level for effect in outcome.effects] == [POSSIBLE]


def test_a_reduction_shows_that_its_receiver_is_a_tensor_or_an_array() -> None:
    reduced = method(KNOWN["unknown"], "max", arguments())
    assert reduced is not None
    assert told(method(reduced.value, "item", arguments())) == ["item"]


def test_a_method_of_tensors_shows_that_its_receiver_is_one() -> None:
    outcome = method(KNOWN["unknown"], "unsqueeze", arguments(0))
    assert outcome is not None
    assert (outcome.value.kinds, outcome.value.places, outcome.value.strength) == (TENSOR, ON_DEVICE, LIKELY)
    assert method(KNOWN["unknown"], "frobnicate", arguments()) is None


def test_a_name_and_a_method_together_are_likely() -> None:
    lens = assumed("seq_lens")
    assert lens.strength == POSSIBLE
    maximum = method(lens, "max", arguments())
    assert maximum is not None
    assert told(method(maximum.value, "item", arguments())) == ["item"]
    assert told(method(assumed("seq_lens_cpu"), "tolist", arguments())) == []


def test_queues() -> None:
    for ref, form in (("torch.cuda.Event", "event-synchronize"), ("torch.cuda.Stream", "stream-synchronize")):
        queue = Value(kinds=OBJECT, ref=ref)
        assert told(method(queue, "synchronize", arguments())) == [form]
        assert told(method(queue, "query", arguments())) == []
        assert told(method(queue, "wait_stream", arguments("unknown"))) == []
    assert told(method(KNOWN["unknown"], "synchronize", arguments())) == ["event-synchronize"]


@pytest.mark.parametrize(
    ("name", "level"), [("debug", POSSIBLE), ("info", LIKELY), ("warning", LIKELY), ("exception", LIKELY)]
)
def test_a_logger_formats_what_it_emits(name: str, level: int) -> None:
    outcome = method(LOGGER, name, arguments("%s", "x"))
    assert outcome is not None
    assert [(effect.form, effect.level) for effect in outcome.effects] == [("format-logging", level)]
    quiet = method(LOGGER, name, arguments("%s", "n"))
    assert quiet is not None and quiet.effects == ()


def test_attributes() -> None:
    for name in ("is_cuda", "ndim", "requires_grad"):
        found = attribute(KNOWN["x"], name)
        assert found is not None and found.kinds == HOST
    device = attribute(KNOWN["cpu"], "device")
    assert device is not None and (device.kinds, device.places) == (DEVICE, PAGEABLE)
    shape = attribute(KNOWN["m"], "shape")
    assert shape is not None and shape.kinds == SEQUENCE and len(shape.items or ()) == 2
    assert attribute(KNOWN["unknown"], "seq_lens") is None


def test_a_module_keeps_what_it_is_given_on_the_device() -> None:
    linear = Value(kinds=OBJECT, ref="torch.nn.Linear", places=PAGEABLE, strength=2)
    moved = method(linear, "to", arguments("device"))
    assert told(moved) == ["module-to-device"] and moved is not None
    assert told(method(moved.value, "to", arguments("device"))) == []
    result = method(moved.value, "__call__", arguments("x"))
    assert result is not None and result.value.places == ON_DEVICE
