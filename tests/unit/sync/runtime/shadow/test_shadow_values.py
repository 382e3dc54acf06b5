"""Programs on a shadow device run to their end with the values of the CPU, and every wait is told with its line."""

from __future__ import annotations

import copy
import io
import pickle
import threading

import pytest
import torch

from dsv4prof.model.syncs import Kind
from dsv4prof.sync.runtime.shadow import ShadowDevice, inner_of, memory_of
from shadow_programs import ALL, on_cpu, on_shadow


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("vendor", ["cuda", "hip"])
def test_the_values_are_those_of_the_cpu(name: str, vendor: str) -> None:
    program = ALL[name]
    shadowed, _ = on_shadow(program, vendor=vendor)
    torch.testing.assert_close(shadowed, [*on_cpu(program)] if name != "graphs" else on_cpu(program))


def test_a_tensor_says_cuda_and_knows_its_memory() -> None:
    with ShadowDevice("cuda", lambda _: None, devices=2):
        x = torch.zeros(4, 2, device="cuda")
        assert (str(x.device), x.is_cuda, x.is_cpu, x.get_device()) == ("cuda:0", True, False, 0)
        assert memory_of(x[1]) == memory_of(x) == (inner_of(x).data_ptr(), 32)
        assert x[1].data_ptr() == x.data_ptr() + 8
        assert x.__cuda_array_interface__["shape"] == (4, 2)
        with torch.cuda.device(1):
            assert str(torch.zeros(1, device="cuda").device) == "cuda:1"
        assert str(torch.zeros_like(x, device="cuda:1").device) == "cuda:1"
        assert x.to("cuda") is x
        with pytest.raises(TypeError, match=r"Tensor.cpu\(\)"):
            x.numpy()
        with pytest.raises(RuntimeError, match="two devices"):
            x + torch.zeros(4, 2)


def test_copies_by_pickle_deepcopy_and_load_are_copies_on_the_device() -> None:
    def program(device: str):
        x = torch.nn.Parameter(torch.arange(3.0, device=device))
        file = io.BytesIO()
        torch.save({"x": x.detach()}, file)
        file.seek(0)
        loaded = torch.load(file)["x"]
        others = [copy.deepcopy(x), pickle.loads(pickle.dumps(x.detach())), loaded]
        with torch.no_grad():
            x.zero_()
        assert isinstance(others[0], torch.nn.Parameter)
        assert all(one.device == x.device for one in others)
        shared = copy.copy(x.detach())
        return [*others, shared]

    values, seen = on_shadow(program)
    assert [one.tolist() for one in values] == [[0, 1, 2], [0, 1, 2], [0, 1, 2], [0, 0, 0]]
    assert [one.form for one in seen].count("serialize") == 2


def test_modules_keep_their_parameters_when_they_move() -> None:
    with ShadowDevice("cuda", lambda _: None):
        net = torch.nn.Linear(2, 2)
        weight = net.weight
        net.to("cuda")
        assert net.weight is weight
        assert weight.device.type == "cuda"
        net.half()
        assert weight.dtype is torch.float16
        net.cpu()
        assert weight.device.type == "cpu"
        assert net(torch.ones(1, 2).half()).shape == (1, 2)


def test_every_wait_is_told_with_its_line_and_the_outermost_operator() -> None:
    def program(device: str):
        x = torch.arange(4, device=device)
        y = torch.repeat_interleave(x, x)
        return y, x[: x[1]]

    _, seen = on_shadow(program)
    first, second = seen
    assert (first.op, first.form, first.code, first.times) == (
        "aten::repeat_interleave", "repeat-interleave-tensor", "DSV105", 2,
    )  # fmt: skip
    assert (second.op, second.form, second.code) == ("Tensor.__getitem__", "slice-bound", "DSV110")
    assert first.stack[0].file == __file__
    assert first.stack[0].function.endswith("program")
    assert second.stack[0].line == first.stack[0].line + 1
    assert not [one for one in first.stack if "/dsv4prof/sync/runtime/" in one.file.replace(__file__, "")]
    assert first.shapes == ((4,),)


def test_pinning_decides_about_asynchronous_copies() -> None:
    def program(device: str):
        x = torch.arange(8.0, device=device)
        pinned, pageable = torch.empty(8, pin_memory=True), torch.empty(8)
        assert pinned.is_pinned()
        assert pinned[2:].is_pinned()
        assert not pageable.is_pinned()
        assert x.to("cpu", non_blocking=True).is_pinned()
        assert pageable.pin_memory().is_pinned()
        pinned.copy_(x, non_blocking=True)
        pageable.copy_(x, non_blocking=True)
        pinned[::2].copy_(x[:4], non_blocking=True)
        return pinned, pageable

    (pinned, pageable), seen = on_shadow(program)
    assert pageable.tolist() == list(range(8))
    assert pinned[::2].tolist() == [0, 1, 2, 3]
    waits = [(one.kind, one.form) for one in seen if one.kind.waits]
    assert waits == [
        (Kind.SILENT, "copy-to-pageable-nonblocking"),
        (Kind.SILENT, "copy-to-strided-pinned-nonblocking"),
    ]
    assert {one.form for one in seen if not one.kind.waits} == {"pin-memory"}


def test_threads_started_inside_have_the_device_too() -> None:
    def program(device: str):
        found = []

        def work() -> None:
            found.append(torch.ones(3, device=device).sum().item())

        threads = [threading.Thread(target=work) for _ in range(3)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
        return found

    values, seen = on_shadow(program)
    assert values == [3.0] * 3
    assert len(seen) == 3
    assert len({one.thread for one in seen}) == 3


def test_a_wait_during_a_capture_is_an_error_as_on_a_device() -> None:
    with ShadowDevice("cuda", lambda _: None):
        x = torch.ones(3, device="cuda")
        graph = torch.cuda.CUDAGraph()
        with pytest.raises(RuntimeError, match="capturing"), torch.cuda.graph(graph):
            x.sum().item()


def test_vendors_say_what_their_torch_would() -> None:
    for vendor, name in (("cuda", "NVIDIA"), ("hip", "AMD")):
        with ShadowDevice(vendor, lambda _: None):
            assert name in torch.cuda.get_device_name()
            assert bool(torch.version.hip) == (vendor == "hip")
            assert bool(torch.version.cuda) == (vendor == "cuda")
