"""What operators, copies, raw copies and writes outside of torch become, told by a scripted device."""

from __future__ import annotations

import pytest
import torch

from scripted_device import ScriptedDevice

aten = torch.ops.aten


@pytest.fixture
def device():
    return ScriptedDevice()


def upload(device, target, source, *, stream=0, later=True):
    return device.run(aten.copy_.default, target, source, later, stream=stream)


def test_an_upload_whose_source_is_written_again(device):
    x, staging = device.device(8), device.pinned(8)
    upload(device, x, staging)
    device.run(aten.fill_.Scalar, staging, 3)
    (hazard,) = device.tracker.hazards()
    assert (hazard.code, hazard.trouble, hazard.memory.place, hazard.memory.nbytes) == (
        "DSV203",
        "overwritten",
        "pinned",
        64,
    )
    assert hazard.first.stack[0].function == hazard.second.stack[0].function == "ScriptedDevice.run"
    assert [frame.function for frame in hazard.first.stack][1] == "upload"


@pytest.mark.parametrize("wait", ["event", "stream", "device", "query"])
def test_any_wait_of_the_host_orders_the_write(device, wait):
    x, staging, tracker = device.device(8), device.pinned(8), device.tracker
    upload(device, x, staging)
    tracker.event_recorded(1, 0)
    if wait == "event":
        tracker.host_waits_event(1)
    elif wait == "query":
        tracker.event_queried(1, True)
    elif wait == "stream":
        tracker.host_waits_stream(0)
    else:
        tracker.host_waits_device()
    device.run(aten.fill_.Scalar, staging, 3)
    assert not device.found


def test_an_event_that_is_not_done_orders_nothing(device):
    x, staging = device.device(8), device.pinned(8)
    upload(device, x, staging)
    device.tracker.event_recorded(1, 0)
    device.tracker.event_queried(1, False)
    device.run(aten.fill_.Scalar, staging, 3)
    assert device.found == [("DSV203", "overwritten")]


def test_a_value_read_back_orders_what_came_before_it(device):
    x, staging = device.device(8), device.pinned(8)
    upload(device, x, staging)
    device.run(aten._local_scalar_dense.default, x[0])
    device.run(aten.fill_.Scalar, staging, 3)
    assert not device.found


def test_a_blocking_or_pageable_upload_leaves_its_source_free(device):
    x, staging, pageable = device.device(8), device.pinned(8), torch.zeros(8, dtype=torch.int64)
    upload(device, x, staging, later=False)
    device.run(aten.fill_.Scalar, staging, 3)
    upload(device, x, pageable)
    device.run(aten.fill_.Scalar, pageable, 3)
    assert not device.found


def test_another_part_of_the_staging_buffer_is_free(device):
    x, staging = device.device(8), device.pinned(32)
    upload(device, x, staging[:8])
    device.run(aten.fill_.Scalar, staging[8:16], 3)
    assert not device.found
    device.run(aten.fill_.Scalar, staging[4:12], 3)
    assert device.found == [("DSV203", "overwritten")]


def test_a_copy_to_the_host_is_read_before_and_after_its_event(device):
    x, host = device.device(8), device.pinned(8)
    upload(device, host, x)
    device.tracker.event_recorded(4, 0)
    device.tracker.host_reads(host)
    assert device.found == [("DSV202", "read-early")]
    again = ScriptedDevice()
    x, host = again.device(8), again.pinned(8)
    upload(again, host, x)
    again.tracker.event_recorded(4, 0)
    again.tracker.host_waits_event(4)
    again.tracker.host_reads(host)
    again.run(aten.add.Tensor, host, host)
    assert not again.found


def test_an_operator_on_the_host_reads_too(device):
    x, host = device.device(8), device.pinned(8)
    upload(device, host, x)
    device.run(aten.sum.default, host)
    assert device.found == [("DSV202", "read-early")]


def test_an_event_of_another_stream_orders_nothing(device):
    x, host = device.device(8), device.pinned(8)
    upload(device, host, x, stream=5)
    device.tracker.event_recorded(4, 0)
    device.tracker.host_waits_event(4)
    device.tracker.host_reads(host)
    assert device.found == [("DSV202", "read-early")]


@pytest.mark.parametrize("trouble", ["write-after-read", "read-after-write", "write-after-write"])
def test_two_streams_without_an_order(trouble):
    first, second = {
        "write-after-read": (aten.clone.default, aten.zero_.default),
        "read-after-write": (aten.zero_.default, aten.clone.default),
        "write-after-write": (aten.zero_.default, aten.zero_.default),
    }[trouble]
    bare, ordered = ScriptedDevice(), ScriptedDevice()
    for device in (bare, ordered):
        x = device.device(64)
        device.run(first, x)
        if device is ordered:
            device.tracker.stream_waits_stream(9, 0)
        device.run(second, x, stream=9)
    assert bare.found == [("DSV204", trouble)] and not ordered.found


def test_views_and_columns_that_share_no_byte_are_no_conflict(device):
    x = device.device(8, 8)
    device.run(aten.zero_.default, x[:, :4])
    device.run(aten.zero_.default, x[:, 4:], stream=9)
    device.run(aten.view.default, x, [64], stream=9)
    assert not device.found
    device.run(aten.zero_.default, x[:, 3:5], stream=9)
    assert device.found == [("DSV204", "write-after-write")]


def test_a_raw_copy_is_unknown_to_the_allocator(device):
    x, staging = device.device(8), device.pinned(8)
    upload(device, x, staging)
    device.tracker.raw_copy(x.data_ptr(), staging.data_ptr(), 64, 0)
    device.free(staging)
    assert device.found == [("DSV203", "freed")]


def test_a_buffer_that_only_raw_copies_name(device):
    """The C++ planner's own memory, used again at the same address with other content."""
    x, staging = device.device(8), torch.zeros(8, dtype=torch.int64)
    for value in (1, 2):
        staging.numpy()[:] = value
        device.tracker.is_memory(staging.data_ptr(), 64, "pinned")
        device.tracker.raw_copy(x.data_ptr(), staging.data_ptr(), 64, 0)
    assert device.found == [("DSV203", "overwritten")]
    (hazard,) = device.tracker.hazards()
    assert hazard.second.op == "a write outside of torch"


def test_numpy_writes_into_staging_are_seen_by_what_they_change():
    for waits in (False, True):
        device = ScriptedDevice()
        x, staging = device.device(8), device.pinned(8)
        for value in range(3):
            staging.numpy()[:] = value
            upload(device, x, staging)
            if waits:
                device.tracker.host_waits_stream(0)
        assert device.found == ([] if waits else [("DSV203", "overwritten")])


def test_a_wait_that_comes_after_the_write_does_not_hide_it(device):
    x, staging = device.device(8), device.pinned(8)
    upload(device, x, staging)
    staging.numpy()[:] = 4
    device.tracker.host_waits_device()
    assert device.found == [("DSV203", "overwritten")]


def test_memory_freed_in_use_and_record_stream():
    for told in (False, True):
        device = ScriptedDevice()
        x = device.run(aten.clone.default, device.device(8))
        device.tracker.stream_waits_stream(9, 0)
        device.run(aten.sum.default, x, stream=9)
        if told:
            device.run(aten.view.default, x, [8])
            device.tracker._feed(_kept(device, x))
        device.free(x)
        device.run(aten.clone.default, device.device(4))
        assert device.found == ([] if told else [("DSV204", "freed-in-use")])


def _kept(device, tensor):
    from dsv4prof.sync.runtime.hazards.events import Kept

    return Kept(device.tracker._buffers.get(tensor.data_ptr()).number, 9)


def test_an_output_size_is_compared_before_the_operator_can_fail(device):
    counts = device.device(3)
    counts += torch.tensor([2, 1, 4])
    device.run(aten.repeat_interleave.Tensor, counts, output_size=7)
    assert not device.found
    with pytest.raises(RuntimeError):
        device.run(aten.repeat_interleave.Tensor, counts, output_size=64)
    (hazard,) = device.tracker.hazards()
    assert hazard.code == "DSV201" and hazard.facts == {"given": 64, "actual": 7}


def test_totals_that_the_host_has_are_named(device):
    counts = device.device(3)
    counts += torch.tensor([2, 1, 4])

    def expand(num_rows, bucket):
        return device.run(aten.repeat_interleave.Tensor, counts)

    expand(7, 7)
    expand(7, 8)
    totals = device.tracker.log().totals
    assert [each.calls for each in totals] == [1, 1] or totals[0].calls == 2
    equal = {name: count for total in totals for name, count in total.equal.items()}
    assert "num_rows in expand" in equal


def test_a_captured_graph_works_at_its_replays(device):
    x, tracker = device.device(8), device.tracker
    tracker.graph_begins(77)
    device.run(aten.zero_.default, x)
    tracker.graph_ends()
    device.run(aten.clone.default, x, stream=9)
    assert not device.found
    tracker.graph_replayed(77, 0)
    assert device.found == [("DSV204", "write-after-read")]


def test_state_of_a_long_run_is_bounded(device):
    x, staging = device.device(8), device.pinned(8)
    for _ in range(3000):
        upload(device, x, staging)
        y = device.run(aten.add.Tensor, x, x)
        device.tracker.event_recorded(1, 0)
        device.tracker.host_waits_event(1)
        device.free(y)
    assert not device.found
    assert device.tracker._judge.size < 3000 and len(device.tracker._buffers) < 20
