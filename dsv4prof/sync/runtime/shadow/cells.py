"""The fused cells of recurrent networks, which torch has for devices only."""

from __future__ import annotations

from typing import Any

import torch

from dsv4prof.sync.runtime.shadow.tensor import inner_of
from dsv4prof.sync.runtime.shadow.world import World


def lstm(func: Any, args: Any, kwargs: dict[str, Any], world: World) -> tuple[torch.Tensor, ...]:
    """Of gates of input and hidden state (B, 4H), old cell state (B, H) and two biases: hidden, cell, workspace."""
    input_gates, hidden_gates, old, *biases = _given(args, kwargs)
    gates = _plus(input_gates, biases[0]) + _plus(hidden_gates, biases[1])
    enter, forget, cell, out = gates.chunk(4, 1)
    state = forget.sigmoid() * old + enter.sigmoid() * cell.tanh()
    return tuple(world.wrap(one) for one in (out.sigmoid() * state.tanh(), state, gates))


def gru(func: Any, args: Any, kwargs: dict[str, Any], world: World) -> tuple[torch.Tensor, ...]:
    """Of gates of input and hidden state (B, 3H), old hidden state (B, H) and two biases: hidden, workspace."""
    input_gates, hidden_gates, old, *biases = _given(args, kwargs)
    of_input, of_hidden = _plus(input_gates, biases[0]), _plus(hidden_gates, biases[1])
    (reset, update, new), (reset_h, update_h, new_h) = of_input.chunk(3, 1), of_hidden.chunk(3, 1)
    share = (update + update_h).sigmoid()
    fresh = (new + (reset + reset_h).sigmoid() * new_h).tanh()
    return world.wrap(fresh + share * (old - fresh)), world.wrap(torch.cat([of_input, of_hidden, old], 1))


def gru_backward(func: Any, args: Any, kwargs: dict[str, Any], world: World) -> tuple[torch.Tensor | None, ...]:
    """Of the gradient of the hidden state (B, H) and the workspace of `gru` (B, 7H), biases within its gates."""
    grad, workspace, biased = (inner_of(one) for one in args)
    of_input, of_hidden, old = workspace.split([3 * grad.shape[1], 3 * grad.shape[1], grad.shape[1]], 1)
    backward = torch.ops.aten._thnn_differentiable_gru_cell_backward.default
    to_input, to_hidden, to_old, *_ = backward(grad, of_input, of_hidden, old, None, None)
    found = [to_input, to_hidden, to_old] + ([to_input.sum(0), to_hidden.sum(0)] if biased else [])
    return (*(world.wrap(one) for one in found), *[None] * (5 - len(found)))


def _given(args: Any, kwargs: dict[str, Any]) -> list[Any]:
    given = [inner_of(one) for one in args]
    names = ("input_bias", "hidden_bias")[len(given) - 3 :]
    return given + [inner_of(kwargs.get(name)) for name in names]


def _plus(gates: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
    return gates if bias is None else gates + bias
