"""A device for tests of what listens to one: CPU tensors that are said to lie on it, told to a tracker in the form in
which dispatch tells them. It knows nothing of shadow tensors."""

from __future__ import annotations

import torch

from dsv4prof.sync.runtime.calls import OpCall
from dsv4prof.sync.runtime.hazards.tracker import HazardTracker


class ScriptedDevice:
    def __init__(self, **options):
        self.tracker = HazardTracker(**options)
        self._places = {}
        self._kept = []

    def place_of(self, tensor):
        return self._places.get(tensor.untyped_storage().data_ptr(), "pageable")

    def on(self, place, tensor):
        self._places[tensor.untyped_storage().data_ptr()] = place
        self._kept.append(tensor)
        return tensor

    def device(self, *size, dtype=torch.int64):
        """A new tensor of the device, from a kernel on the default stream."""
        return self.on("device", torch.zeros(*size, dtype=dtype))

    def pinned(self, *size, dtype=torch.int64):
        return self.on("pinned", torch.zeros(*size, dtype=dtype))

    def run(self, function, *args, stream=0, **kwargs):
        """An overload such as torch.ops.aten.add.Tensor; a result with memory of its own lies where its inputs do."""
        call = OpCall(function._schema.name, function._schema.overload_name, args, kwargs, self.place_of, stream)
        self.tracker.op_begins(call)
        result = function(*args, **kwargs)
        given = [self.place_of(each) for each in args if isinstance(each, torch.Tensor)]
        is_new = isinstance(result, torch.Tensor) and self.place_of(result) == "pageable"
        if is_new and "device" in given and function._schema.name != "aten::_to_copy":
            self.on("device", result)
        self.tracker.op(call, result)
        return result

    def free(self, tensor):
        storage = tensor.untyped_storage()
        self._places.pop(storage.data_ptr(), None)
        self.tracker.freed(storage.data_ptr(), storage.nbytes())

    @property
    def found(self):
        return [(hazard.code, hazard.trouble) for hazard in self.tracker.hazards()]
