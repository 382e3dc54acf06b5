"""The feed of a real device, tried on shadow tensors that tell nobody themselves: what it hears comes from torch's own
dispatch and from streams and events."""

from __future__ import annotations

from contextlib import contextmanager

import pytest
import torch

from dsv4prof.sync.runtime.hazards.gpu_feed import gpu_feed
from dsv4prof.sync.runtime.hazards.tracker import HazardTracker
from dsv4prof.sync.runtime.shadow import ShadowDevice
from dsv4prof.sync.runtime.shadow.streams import ShadowEvent, ShadowStream
from dsv4prof.sync.runtime.shadow.tensor import inner_of
from hazard_programs import PROGRAMS


@contextmanager
def fed():
    tracker = HazardTracker(inner_of=lambda tensor: inner_of(tensor) if tensor.is_cuda else tensor)
    with ShadowDevice("cuda", lambda _: None), gpu_feed(tracker, event_type=ShadowEvent, stream_type=ShadowStream):
        # As torch's own streams do it.
        real = ShadowStream.wait_stream
        ShadowStream.wait_stream = lambda self, other: self.wait_event(other.record_event())
        try:
            yield tracker
        finally:
            ShadowStream.wait_stream = real


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_a_device_without_a_listener_is_heard_by_its_feed(program):
    if program.__name__ == "unkept_memory":
        pytest.skip("record_stream of a shadow is no operator")
    for clean in (False, True):
        with fed() as tracker:
            program(clean)
        wanted = set() if clean else {PROGRAMS[program]}
        assert {(hazard.code, hazard.trouble) for hazard in tracker.hazards()} == wanted


def test_everything_is_as_it_was_afterwards():
    before = {name: vars(ShadowEvent)[name] for name in ("record", "wait", "synchronize", "query")}
    methods = "numpy" in vars(torch.Tensor), "tolist" in vars(torch.Tensor), torch.cuda.synchronize
    with fed():
        assert vars(ShadowEvent)["record"] is not before["record"]
    assert before == {name: vars(ShadowEvent)[name] for name in before}
    assert methods == ("numpy" in vars(torch.Tensor), "tolist" in vars(torch.Tensor), torch.cuda.synchronize)


def test_composed_operators_are_heard_as_their_parts_in_inference_mode():
    with fed() as tracker, torch.inference_mode():
        lens = torch.tensor([1, 2], device="cuda")
        with pytest.raises(RuntimeError):
            torch.repeat_interleave(torch.arange(2, device="cuda"), lens, output_size=9)
    (hazard,) = tracker.hazards()
    assert hazard.facts == {"given": 9, "actual": 3}
