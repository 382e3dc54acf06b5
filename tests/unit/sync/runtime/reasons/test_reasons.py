"""Which operators wait: told from shapes, strides and places, never from a value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch

from dsv4prof.model.syncs import Kind
from dsv4prof.sync import catalogue
from dsv4prof.sync.runtime.calls import OpCall, Reason
from dsv4prof.sync.runtime.reasons import PendingUploads, named, reasons_of, refined
from dsv4prof.sync.runtime.reasons.table import judged_operators

MIB = 1 << 20


class Places:
    """Tensors on `meta` stand for a device: reading one raises. Host tensors are pinned where they are listed."""

    def __init__(self, *pinned: torch.Tensor) -> None:
        self._pinned = {one.untyped_storage()._cdata for one in pinned}

    def __call__(self, tensor: torch.Tensor) -> str:
        if tensor.is_meta:
            return "device"
        return "pinned" if tensor.untyped_storage()._cdata in self._pinned else "pageable"


def judged(op: str, *args: Any, pinned: tuple[torch.Tensor, ...] = (), version: str | None = None, **kwargs: Any):
    name, _, overload = op.partition(".")
    call = OpCall(f"aten::{name}", overload, args, kwargs, Places(*pinned))  # type: ignore[arg-type]
    return reasons_of(call, torch_version=version)


def forms(reasons: tuple[Reason, ...]) -> list[tuple[str, str]]:
    return [(one.kind.value, one.form) for one in reasons]


def device(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def test_blocking_copies_wait_whatever_the_memory() -> None:
    host, pinned = torch.empty(4), torch.empty(4)
    for target in (host, pinned):
        assert forms(judged("copy_", target, device(4), pinned=(pinned,))) == [("SYNC", "copy-to-host")]
        assert forms(judged("copy_", device(4), target, pinned=(pinned,))) == [("SYNC", "copy-from-host")]
        assert forms(judged("_to_copy", target, device=torch.device("cuda:0"), pinned=(pinned,))) == [
            ("SYNC", "to-device")
        ]
    assert judged("copy_", device(4), device(4)) == ()
    assert judged("copy_", host, pinned) == ()
    assert judged("copy_", host[:0], device(0)) == ()
    assert forms(judged("_to_copy", device(4), device="cpu")) == [("SYNC", "to-cpu")]
    assert judged("_to_copy", device(4), device="cpu", non_blocking=True) == ()
    assert judged("_to_copy", device(0), device="cpu") == ()
    assert judged("_to_copy", device(4), dtype=torch.float16) == ()


@pytest.mark.parametrize(("nbytes", "kind"), [(1, "SUSPECT"), (2 * MIB, "SUSPECT"), (2 * MIB + 1, "SILENT")])
def test_a_pageable_upload_is_staged_up_to_two_mebibytes_to_the_byte(nbytes: int, kind: str) -> None:
    source = torch.empty(nbytes, dtype=torch.uint8)
    expected = [(kind, "upload-nonblocking-pageable")]
    assert forms(judged("copy_", device(nbytes, dtype=torch.uint8), source, True)) == expected
    assert forms(judged("_to_copy", source, device="cuda:0", non_blocking=True)) == expected
    assert judged("copy_", device(nbytes, dtype=torch.uint8), source, True, pinned=(source,)) == ()


def test_a_strided_pinned_side_goes_through_a_pageable_temporary() -> None:
    host = torch.empty(64, 64)
    down = [("SILENT", "copy-to-strided-pinned-nonblocking")]
    assert forms(judged("copy_", host[:, :8], device(64, 8), True, pinned=(host,))) == down
    assert forms(judged("copy_", host.t(), device(64, 64), True, pinned=(host,))) == down
    assert judged("copy_", host[:8], device(8, 64), True, pinned=(host,)) == ()
    assert judged("copy_", host.t(), device(64, 64).t(), True, pinned=(host,)) == ()
    assert judged("copy_", host, device(64, 64).t(), True, pinned=(host,)) == ()
    up = [("SUSPECT", "upload-nonblocking-strided-pinned")]
    assert forms(judged("copy_", device(64, 8), host[:, :8], True, pinned=(host,))) == up
    assert judged("_to_copy", host.t(), device="cuda", non_blocking=True, pinned=(host,)) == ()
    assert judged("copy_", device(64, 64, dtype=torch.float16), host, True, pinned=(host,)) == ()
    big = torch.empty(3 * MIB * 2, dtype=torch.uint8)
    assert forms(judged("_to_copy", big[::2], device="cuda", non_blocking=True, pinned=(big,))) == [
        ("SILENT", "upload-nonblocking-strided-pinned")
    ]


def test_several_tensors_are_judged_one_by_one() -> None:
    host = torch.empty(4)
    assert len(judged("_foreach_copy_", [device(4), device(4)], [host, host])) == 2
    assert len(judged("_foreach_copy_", [device(4), device(4)], [device(4), host])) == 1


def test_masks_are_counted_and_host_indices_uploaded() -> None:
    x, mask, places = device(8), device(8, dtype=torch.bool), device(3, dtype=torch.long)
    assert forms(judged("index.Tensor", x, [mask])) == [("SYNC", "mask-index")]
    assert judged("index.Tensor", x, [places]) == ()
    assert judged("index.Tensor", x, [None, places]) == ()
    assert forms(judged("index.Tensor", x, [torch.tensor([1])])) == [("SYNC", "index-by-host-tensor")]
    host_mask = torch.ones(8, dtype=torch.bool)
    assert judged("index.Tensor", x, [host_mask], version="2.11.0") == ()
    assert forms(judged("index.Tensor", x, [host_mask], version="2.8.1")) == [("SYNC", "index-by-host-mask")]
    assert judged("index.Tensor", torch.ones(8), [host_mask]) == ()


def test_one_mask_and_one_host_number_are_a_fill_and_anything_else_is_not() -> None:
    x, mask, places, number = device(8), device(8, dtype=torch.bool), device(3, dtype=torch.long), torch.tensor(1.0)
    assert judged("index_put_", x, [mask], number) == ()
    assert judged("index_put_", device(4, 8), [None, mask], number) == ()
    assert forms(judged("index_put_", x, [mask], device())) == [("SYNC", "mask-assign")]
    assert len(judged("index_put_", x, [mask], number, True, version="2.13")) == 2
    assert len(judged("index_put_", device(8, 8), [mask, mask], number, version="2.13")) == 3
    upload = [("SYNC", "assign-index-number")]
    assert forms(judged("index_put_", x, [places], number, version="2.13.0+cu130")) == upload
    assert judged("index_put_", x, [places], number, version="2.14.1") == ()
    assert judged("index_put_", x, [places], device(3)) == ()
    assert forms(judged("index_put_", x, [places], torch.ones(3), version="2.14")) == [("SYNC", "index-put-host-value")]


@pytest.mark.parametrize(("op", "args", "kwargs", "expected"), [
    ("repeat_interleave.Tensor", (device(3, dtype=torch.long),), {}, 2),
    ("repeat_interleave.Tensor", (device(3, dtype=torch.long),), {"output_size": 5}, 0),
    ("repeat_interleave.Tensor", (device(0, dtype=torch.long),), {}, 0),
    ("repeat_interleave.self_int", (device(3), 2), {}, 0),
    ("bincount", (device(3, dtype=torch.long),), {"minlength": 9}, 2),
    ("histc", (device(3), 8), {}, 2),
    ("histc", (device(3), 8, -1, 1), {}, 0),
    ("isin.Tensor_Tensor", (device(1024), device(2)), {}, 0),
    ("isin.Tensor_Tensor", (device(1024), device(1024)), {}, 3),
    ("isin.Tensor_Tensor", (device(1024), device(1024)), {"assume_unique": True}, 1),
    ("isin.Tensor_Scalar", (device(1024), 3), {}, 0),
    ("mode", (device(2048),), {}, 0),
    ("mode", (device(2049),), {}, 13),
    ("mode", (device(4, 2049), 0), {}, 0),
    ("searchsorted.Tensor", (device(3), device(3)), {}, 0),
    ("searchsorted.Tensor", (device(3), device(3)), {"sorter": device(3, dtype=torch.long)}, 2),
    ("equal", (device(3), device(3)), {}, 1),
    ("equal", (device(3), device(4)), {}, 0),
    ("where.self", (device(3, dtype=torch.bool), device(3), torch.tensor(0.0)), {}, 1),
    ("where.self", (device(3, dtype=torch.bool), device(3), device()), {}, 0),
    ("where.self", (torch.ones(3) > 0, torch.ones(3), torch.tensor(0.0)), {}, 0),
    ("masked_fill.Tensor", (device(3), device(3, dtype=torch.bool), device()), {}, 1),
    ("masked_fill.Tensor", (device(3), device(3, dtype=torch.bool), torch.tensor(1.0)), {}, 0),
    ("masked_fill.Scalar", (device(3), device(3, dtype=torch.bool), 1.0), {}, 0),
    ("normal.Tensor_Tensor", (device(3), device(3)), {}, 2),
    ("normal.Tensor_float", (device(3), 1.0), {}, 0),
    ("segment_reduce", (device(3), "sum"), {"lengths": device(1, dtype=torch.long)}, 2),
    ("segment_reduce", (device(3), "sum"), {"lengths": device(1, dtype=torch.long), "unsafe": True}, 0),
    ("_local_scalar_dense", (device(),), {}, 1),
    ("_local_scalar_dense", (torch.ones(()),), {}, 0),
    ("nonzero", (device(3),), {}, 1),
    ("nonzero", (torch.ones(3),), {}, 0),
    ("_ctc_loss", (device(8, 1, 5), device(1, 3), [8], [3]), {}, 1),
    ("_ctc_loss.Tensor", (device(8, 1, 5), device(1, 3), device(1), device(1)), {}, 8),
    ("_ctc_loss", (torch.ones(8, 1, 5), torch.ones(1, 3), [8], [3]), {}, 0),
    ("add.Tensor", (device(3), device(3)), {}, 0),
])  # fmt: skip
def test_how_often_an_operator_waits(op: str, args: tuple[Any, ...], kwargs: Mapping[str, Any], expected: int) -> None:
    assert sum(one.times for one in judged(op, *args, **kwargs) if one.kind.waits) == expected


def test_the_same_tensor_is_equal_to_itself_without_a_look() -> None:
    x = device(3)
    assert judged("equal", x, x) == ()


def test_multinomial_waited_once() -> None:
    assert judged("multinomial", device(3), 1, version="2.6") == ()
    assert forms(judged("multinomial", device(3), 1, version="2.5.1")) == [("SYNC", "multinomial-old")]


def test_thrust_waits_without_a_warning() -> None:
    assert forms(judged("unique_dim", device(3, 3), 0)) == [("SILENT", "unique-dim")]
    assert forms(judged("_unique2", device(3))) == [("SYNC", "unique")]
    assert judged("_unique2", device(0)) == ()


def test_every_rule_is_for_an_operator_and_speaks_of_known_forms() -> None:
    # Composite in all versions known, or gone from some.
    known = {name for name in judged_operators() if hasattr(torch.ops.aten, name)}
    assert len(judged_operators() - known) <= 3, judged_operators() - known
    for form in ("item", "copy-to-host", "upload-nonblocking-pageable"):
        assert named(form, "x").code == catalogue.form(form).code
    with pytest.raises(KeyError):
        named("no-such-form", "x")


def test_the_outer_function_names_the_form() -> None:
    read = named("item", "a value is read")
    for function, form, code in [
        ("__bool__", "truth-conversion", "DSV107"), ("arange", "arange-bound", "DSV110"), ("", "item", "DSV101"),
        ("__format__", "format-fstring", "DSV109"), ("one_hot", "one-hot-auto", "DSV105"),
        ("frobnicate", "item", "DSV101"),
    ]:  # fmt: skip
        assert (refined(read, function).form, refined(read, function).code) == (form, code)
    assert refined(read, "__getitem__").form == "slice-bound"
    assert refined(read, "__getitem__", device_index=True).form == "index-0dim"
    silent = named("copy-to-host", "x", kind=Kind.SILENT, times=3)
    assert (refined(silent, "__setitem__").form, refined(silent, "__setitem__").times) == ("assign-to-host", 3)


@pytest.mark.parametrize(("nbytes", "first"), [(1 << 20, 3), (65536, 63), (16384, 249), (4096, 993)])
def test_the_upload_that_finds_no_room(nbytes: int, first: int) -> None:
    pending = PendingUploads()
    assert [pending.uploads(nbytes) for _ in range(first)] == [False] * (first - 1) + [True]
    pending.waited()
    assert not pending.uploads(nbytes)


def test_the_launch_queue_is_full_in_the_end() -> None:
    pending = PendingUploads()
    assert [pending.launches() for _ in range(1020)].index(True) == 1019
