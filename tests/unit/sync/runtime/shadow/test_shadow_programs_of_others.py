"""What programs do with a device that the shadow was not written for: state, own classes, higher-order operators."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from dsv4prof.errors import UsageError
from dsv4prof.sync.runtime.shadow import ShadowDevice
from shadow_programs import on_cpu, on_shadow


class Loaded(torch.nn.Parameter):
    """A parameter as serving engines have them: it knows how to load itself."""

    def __new__(cls, data: torch.Tensor, loader: Any = None) -> Any:
        return super().__new__(cls, data=data, requires_grad=False)

    def __init__(self, data: torch.Tensor, loader: Any = None) -> None:
        self.loader = loader

    def load(self, values: torch.Tensor) -> Any:
        self.data.copy_(values)
        return self.loader


class Counted(torch.Tensor):
    """A tensor of a class of its own, without operators of its own."""


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = Loaded(torch.zeros(2, 2), loader="rows")


def gru_backward(device: str) -> Any:
    net = torch.nn.GRU(3, 4, 2, bidirectional=True, batch_first=True).to(device)
    x = torch.arange(30.0, device=device).view(2, 5, 3).div(30).requires_grad_()
    out, hidden = net(x)
    (out.sum() + hidden.pow(2).sum()).backward()
    return [out, hidden, x.grad, *(one.grad for one in net.parameters())]


def unbiased_gru(device: str) -> Any:
    net = torch.nn.GRU(3, 4, bias=False).to(device)
    net(torch.ones(2, 1, 3, device=device))[0].sum().backward()
    return [one.grad for one in net.parameters()]


def data_behind_backward(device: str) -> Any:
    """Written through `.data`, which backward does not mind."""
    x = torch.ones(3, device=device, requires_grad=True)
    y = x.sin()
    x.data.mul_(1)
    y.sum().backward()
    return x.grad


def data_set_and_resized(device: str) -> Any:
    x, y, z = torch.ones(3, device=device), torch.ones(3, device=device), torch.empty(0, device=device)
    x.data = torch.zeros(4, device=device)
    y.set_(x)
    z.resize_(3).fill_(2)
    return [x, y, z]


def second_derivatives(device: str) -> Any:
    return torch.func.hessian(lambda x: (x**2).sum().sin())(torch.arange(3.0, device=device))


def histogram_of_integers(device: str) -> Any:
    """A device has it for integers, the host does not."""
    experts = torch.tensor([0, 1, 1, 3], dtype=torch.int32, device=device)
    if device == "cpu":
        return experts.double().histc(4, 0, 3).int()
    return torch.histc(experts, bins=4, min=0, max=3)


def branches_on_the_device(device: str) -> Any:
    x = torch.arange(3.0, device=device)
    return torch.ops.higher_order.cond(x.sum() > 0, lambda x: (x + 1,), lambda x: (x - 1,), (x,))


OTHERS = (
    gru_backward,
    unbiased_gru,
    data_behind_backward,
    data_set_and_resized,
    second_derivatives,
    histogram_of_integers,
    branches_on_the_device,
)


@pytest.mark.parametrize("program", OTHERS, ids=lambda one: one.__name__)
def test_the_values_are_those_of_the_cpu(program: Any) -> None:
    shadowed, _ = on_shadow(program)
    torch.testing.assert_close(shadowed, list(found) if isinstance(found := on_cpu(program), tuple) else found)


def test_a_branch_on_a_device_value_reads_it() -> None:
    _, seen = on_shadow(branches_on_the_device)
    assert [one.code for one in seen if one.kind.waits] == ["DSV101"]


def test_a_state_of_the_generator_that_is_set_is_drawn_from() -> None:
    with ShadowDevice("cuda", lambda _: None):
        state = torch.cuda.get_rng_state()
        first = torch.rand(3, device="cuda")
        torch.cuda.set_rng_state(state)
        assert torch.rand(3, device="cuda").tolist() == first.tolist()
        torch.cuda.manual_seed(3)
        first = torch.rand(3, device="cuda")
        torch.cuda.default_generators[0].manual_seed(3)
        assert torch.rand(3, device="cuda").tolist() == first.tolist()


def test_parameters_keep_their_class_and_what_hangs_on_them() -> None:
    inherited = torch.nn.Parameter.__new__
    with ShadowDevice("cuda", lambda _: None):
        made = Loaded(torch.zeros(2, 2, device="cuda"), loader="columns")
        assert isinstance(made, Loaded)
        assert made.load(torch.ones(2, 2)) == "columns"
        assert made.tolist() == [[1, 1], [1, 1]]
        layer = Layer()
        layer.weight.note = "mine"
        for place in ("cuda", "cpu", "cuda"):
            layer.to(place)
            assert (type(layer.weight).__name__, layer.weight.device.type) == ("Loaded", place)
            assert isinstance(layer.weight, Loaded)
            assert (layer.weight.load(torch.ones(2, 2)), layer.weight.note) == ("rows", "mine")
    assert torch.nn.Parameter.__new__ is inherited


def test_tensors_of_a_programs_own_class_stay_of_it() -> None:
    with ShadowDevice("cuda", lambda _: None):
        x = torch.arange(3.0, device="cuda")
        mine = x.as_subclass(Counted)
        mine.add_(1)
        assert isinstance(mine + 1, Counted)
        assert x.tolist() == [1, 2, 3]
        assert not isinstance(mine.as_subclass(torch.Tensor), Counted)


def test_strided_nested_tensors_are_refused_in_a_sentence() -> None:
    with (
        ShadowDevice("cuda", lambda _: None),
        pytest.raises(NotImplementedError, match=r"layout=torch\.jagged"),
    ):
        torch.nested.nested_tensor([torch.ones(2, 3, device="cuda"), torch.ones(4, 3, device="cuda")])


def test_too_little_memory_is_an_error_that_programs_catch() -> None:
    with ShadowDevice("cuda", lambda _: None), pytest.raises(torch.OutOfMemoryError, match="CUDA out of memory"):
        torch.empty(1 << 50, device="cuda")


def test_an_export_is_refused_and_a_pool_is_any_memory() -> None:
    with ShadowDevice("cuda", lambda _: None):
        with torch.cuda.use_mem_pool(torch.cuda.MemPool()):
            assert torch.ones(2, device="cuda").tolist() == [1, 1]
        with pytest.raises(UsageError, match=r"torch\.export traces"):
            torch.export.export(torch.nn.Linear(2, 2).cuda(), (torch.ones(1, 2, device="cuda"),))


def test_graphed_callables_answer_as_the_module_does() -> None:
    model, inputs = torch.nn.Linear(4, 2), torch.arange(8.0).view(2, 4)
    expected = model(inputs)
    with ShadowDevice("cuda", lambda _: None), torch.no_grad():
        graphed = torch.cuda.make_graphed_callables(model.cuda(), (torch.zeros(2, 4, device="cuda"),))
        assert torch.allclose(graphed(inputs.cuda()).cpu(), expected)
