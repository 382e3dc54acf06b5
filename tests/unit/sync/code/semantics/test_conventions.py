"""What names and annotations suggest."""

from __future__ import annotations

import pytest

from dsv4prof.sync.code.semantics import Conventions, assumed, from_annotation, is_host_name
from dsv4prof.sync.code.values import (
    ARRAY,
    DEVICE,
    HOST,
    HOST_PLACES,
    LIKELY,
    ON_DEVICE,
    PAGEABLE,
    PINNED,
    POSSIBLE,
    SEQUENCE,
    TENSOR,
    UNKNOWN,
)


@pytest.mark.parametrize(
    ("name", "host"),
    [
        ("seq_lens_cpu", True),
        ("cpu_lens", True),
        ("host_indices", True),
        ("lens_host", True),
        ("lens_np", True),
        ("lens_list", True),
        ("pinned_lens", True),
        ("pin_lens", True),
        ("seq_lens", False),
        ("pin_memory", False),
        ("use_cpu", False),
        ("is_host", False),
        ("cpu_to_gpu", False),
        ("hosting", False),
        ("", False),
    ],
)
def test_host_names(name: str, host: bool) -> None:
    assert is_host_name(name) is host


def test_further_patterns() -> None:
    assert not is_host_name("lens_shadow")
    assert is_host_name("lens_shadow", Conventions(mirrors=("*_shadow",)))


@pytest.mark.parametrize(
    ("name", "kinds", "places", "strength"),
    [
        ("seq_lens", TENSOR, ON_DEVICE, POSSIBLE),
        ("req_pool_indices", TENSOR, ON_DEVICE, POSSIBLE),
        ("cu_seqlens_q", TENSOR, ON_DEVICE, LIKELY),
        ("kv_indptr", TENSOR, ON_DEVICE, LIKELY),
        ("seq_lens_cpu", TENSOR, HOST_PLACES, LIKELY),
        ("pinned_lens", TENSOR, PINNED, LIKELY),
        ("lens_np", ARRAY, 0, LIKELY),
        ("lens_list", SEQUENCE, 0, LIKELY),
        ("batch_size", HOST, 0, LIKELY),
        ("num_tokens", HOST, 0, LIKELY),
        ("max_seq_len", HOST, 0, LIKELY),
        ("use_mla", HOST, 0, LIKELY),
    ],
)
def test_assumed(name: str, kinds: int, places: int, strength: int) -> None:
    found = assumed(name)
    assert (found.kinds, found.places, found.strength) == (kinds | UNKNOWN, places, strength)


def test_most_names_say_nothing() -> None:
    for name in ("batch", "req", "foo", "self", "num_accepted_tokens", "_"):
        assert assumed(name).kinds == UNKNOWN or assumed(name).strength == POSSIBLE, name
    assert assumed("batch").kinds == UNKNOWN


def test_devices_by_name() -> None:
    assert (assumed("device").kinds, assumed("device").places) == (DEVICE, ON_DEVICE)
    assert assumed("cpu_device").places == PAGEABLE
    assert assumed("device_id").kinds & DEVICE == 0


def test_annotations() -> None:
    device = from_annotation("torch.Tensor", "lens")
    host = from_annotation("torch.Tensor", "lens_cpu")
    assert device is not None and (device.places, device.strength) == (ON_DEVICE, LIKELY)
    assert host is not None and host.places == HOST_PLACES
    number = from_annotation("int", "lens")
    assert number is not None and number.kinds == HOST
    array = from_annotation("numpy.ndarray", "lens")
    assert array is not None and array.kinds == ARRAY
    mask = from_annotation("torch.BoolTensor", "chosen")
    assert mask is not None and mask.dtype == "bool"
    assert from_annotation("somewhere.Batch", "batch") is None


def test_a_mask_is_known_by_its_name_and_a_vector_too() -> None:
    mask, vector = from_annotation("torch.Tensor", "valid_mask"), from_annotation("torch.Tensor", "cu_seqlens")
    assert mask is not None and mask.dtype == "bool"
    assert vector is not None and vector.ndim == 1
