"""Small programs that run on a device by its name alone, so that a shadow and the CPU can be compared."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F

from dsv4prof.model.syncs import Observation
from dsv4prof.sync.runtime.shadow import ShadowDevice

Program = Callable[[str], Any]


def on_shadow(program: Program, *, vendor: str = "cuda", **options: Any) -> tuple[Any, list[Observation]]:
    """What it returns, on the host, and what was seen."""
    seen: list[Observation] = []
    torch.manual_seed(0)
    with ShadowDevice(vendor, seen.append, **options) as device:
        result = program("cuda")
        with device.world.unseen():
            return on_host(result), seen


def on_cpu(program: Program) -> Any:
    torch.manual_seed(0)
    return program("cpu")


def on_host(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().cpu()
    if isinstance(value, (list, tuple)):
        return [on_host(one) for one in value]
    return value


def views(device: str) -> Any:
    """Writes through views and bases, both ways."""
    base = torch.zeros(4, 6, device=device)
    row, column, window = base[1], base[:, 2], base[1:3, ::2]
    row.fill_(3)
    column.add_(1)
    base[2, 4] = 9
    window *= 2
    base.t()[0].copy_(torch.arange(4.0, device=device))
    return base, row, column, window, base.view(2, 12)[:, 3]


def shapes_in_place(device: str) -> Any:
    """Tensors that change their shape, and results written into tensors of another."""
    x = torch.arange(6.0, device=device)
    x.resize_(8)
    x[6:] = 0
    x.unsqueeze_(0)
    x.t_()
    out = torch.empty(0, device=device)
    torch.mul(x, 2, out=out)
    values, places = torch.empty(0, device=device), torch.empty(0, dtype=torch.long, device=device)
    torch.max(x, 0, out=(values, places))
    return x, x.shape, out, out.shape, values, places


def training(device: str) -> Any:
    """Two steps of an optimizer."""
    net = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2)).to(device)
    weights = net[0].weight
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
    losses = []
    for step in range(2):
        x = torch.arange(12.0, device=device).view(3, 4) + step
        loss = F.mse_loss(net(x), torch.ones(3, 2, device=device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss)
    return losses, list(net.parameters()), weights.grad


def inference(device: str) -> Any:
    """In inference mode operators arrive whole; views of older tensors keep a version."""
    table = torch.arange(20.0, device=device).view(4, 5)
    with torch.inference_mode():
        rows = torch.tensor([2, 0], device=device)
        picked = table[rows, :3]
        scores = F.linear(picked, table[:, :3]).softmax(-1)
        return picked, scores, torch.repeat_interleave(rows, rows), table[1:].view(-1)


def indexing(device: str) -> Any:
    x = torch.arange(24.0, device=device).view(4, 6)
    mask = x[:, 0] > 7
    x[mask] = x[mask] * 2
    x[[0, 1]] = 5
    x[torch.tensor([True, False, False, True]), 0] = -1.0
    return x, x[mask], x[..., None].shape, x.nonzero(), torch.where(mask)[0], x[1:3, [0, 2]]


def recurrent(device: str) -> Any:
    """Cells that torch computes in another way on a device."""
    results = []
    for kind in (torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN):
        net = kind(3, 4, num_layers=2, batch_first=True).to(device)
        results.append(net(torch.arange(12.0, device=device).view(2, 2, 3) / 12)[0])
    log_probs = torch.arange(40.0, device=device).view(8, 1, 5).log_softmax(-1)
    targets = torch.tensor([[1, 2, 3]], device=device)
    results.append(F.ctc_loss(log_probs, targets, torch.tensor([8]), torch.tensor([3])))
    return results


def graphs(device: str) -> Any:
    """A graph replayed on new inputs; on the CPU the same function is called."""
    x = torch.zeros(4, device=device)
    total = torch.zeros((), device=device)

    def step() -> torch.Tensor:
        total.add_(x.sum())
        return torch.cat([x * 2, total[None]])

    if device == "cpu":
        outputs = []
        for value in (1.0, 2.0):
            x.fill_(value)
            outputs.append(step())
        return outputs
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = step()
    total.zero_()
    outputs = []
    for value in (1.0, 2.0):
        x.fill_(value)
        graph.replay()
        outputs.append(result.clone())
    return outputs


ALL: dict[str, Program] = {
    one.__name__: one for one in (views, shapes_in_place, training, inference, indexing, recurrent, graphs)
}
