"""Mixture of experts: a few routed experts a token, chosen by a learned router or by the token id, and a shared one."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch.nn import functional as F

from dsv4_engine.config import ModelConfig
from dsv4_engine.model.trace import Recorder
from dsv4_engine.model.weights import WeightReader
from dsv4_engine.parallel.experts import ExpertGroup

_DENSE_MAX_EXPERTS = 32
"""Up to here every expert computes every row as one large product, and rows it was not chosen for count zero."""


def gated_hidden(x: torch.Tensor, gate_up: torch.Tensor, limit: float) -> torch.Tensor:
    """One expert's hidden layer, (R, D) and (2I, D) -> (R, I) float32."""
    gate, up = F.linear(x, gate_up).chunk(2, -1)
    return swiglu(gate, up, limit)


def swiglu(gate: torch.Tensor, up: torch.Tensor, limit: float) -> torch.Tensor:
    """silu(gate) * up in float32, the gate limited above and the other factor on both sides."""
    return F.silu(gate.float().clamp(max=limit)) * up.float().clamp(-limit, limit)


class Router:
    """`ffn.gate.*`: the experts of a row and their weights, in float32."""

    def __init__(self, config: ModelConfig, weights: WeightReader, *, by_token: bool) -> None:
        self._topk, self._scaling = config.num_experts_per_tok, config.routed_scaling_factor
        self._weight = weights.precise("weight")
        self._token_experts = weights.table("tid2eid") if by_token else None
        self._bias = None if by_token else weights.precise("bias")

    def __call__(self, x: torch.Tensor, input_ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Expert ids and weights, both (T, k). The bias steers the choice and never enters the weights."""
        scores = F.softplus(F.linear(x.float(), self._weight)).sqrt()
        if self._token_experts is not None:
            experts = self._token_experts[input_ids]
        else:
            experts = (scores + self._bias).topk(self._topk, -1).indices
        weights = scores.gather(1, experts)
        return experts, weights / weights.sum(-1, keepdim=True) * self._scaling


class MixtureOfExperts:
    """One layer's `ffn.*`. Each rank holds a contiguous block of experts, or a slice of each expert in a block; the
    shared expert is added after the sum."""

    def __init__(self, config: ModelConfig, weights: WeightReader, *, by_token: bool, group: ExpertGroup) -> None:
        self._group, self._limit, self._num_experts = group, config.swiglu_limit, config.n_routed_experts
        self.router = Router(config, weights.below("gate"), by_token=by_token)
        self._local = group.place.local_experts(config.n_routed_experts)
        experts = [weights.below(f"experts.{expert}") for expert in self._local]
        if experts:
            self._up = torch.stack([_gate_up(expert) for expert in experts])
            self._down = torch.stack([expert.matrix("w2.weight").T for expert in experts])
        shared = weights.below("shared_experts")
        self._shared_up, self._shared_down = _gate_up(shared), shared.matrix("w2.weight")

    def __call__(
        self, x: torch.Tensor, input_ids: torch.Tensor, record: Recorder, *, peer_rows: int | None = None
    ) -> torch.Tensor:
        """(T, D) normed input -> (T, D); `peer_rows` as in ForwardBatch."""
        experts, weights = self.router(x, input_ids)
        record("router_indices", experts)
        record("router_weights", weights)
        gathered = self._group.gather(x, experts, weights, peer_rows)
        routed = self._group.combine(self._routed(*gathered), len(x), peer_rows)
        shared = gated_hidden(x, self._shared_up, self._limit).to(x.dtype)
        output = routed + F.linear(shared, self._shared_down)
        record("moe_out", output)
        return output

    def _routed(self, x: torch.Tensor, experts: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """This rank's part of the routed experts' sum, (R, D)."""
        if not self._local:
            return torch.zeros_like(x)
        if len(self._local) <= _DENSE_MAX_EXPERTS:
            return self._dense(x, experts, weights)
        return self._grouped(x, experts, weights)

    def _dense(self, x: torch.Tensor, experts: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        share = torch.zeros(len(x), self._num_experts, device=x.device).scatter_add_(1, experts, weights)
        share = share[:, self._local.start : self._local.stop, None]
        gate, up = F.linear(x, self._up.flatten(0, 1)).unflatten(1, (len(self._local), 2, -1)).unbind(2)
        hidden = (swiglu(gate, up, self._limit) * share).to(x.dtype)
        return hidden.flatten(1) @ self._down.flatten(0, 1)

    def _grouped(self, x: torch.Tensor, experts: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        # Row counts decide how many products to issue, so the host has to know them: one intended read a layer.
        flat = experts.flatten()
        order = torch.argsort(flat, stable=True)
        row = order // experts.shape[1]
        # dsv4prof: allow[DSV102] the reference loops over experts on the host
        bounds = torch.searchsorted(
            flat[order], torch.arange(self._local.start, self._local.stop + 1, device=x.device)
        ).tolist()
        routed = torch.zeros(len(x), x.shape[1], device=x.device)
        share = weights.flatten()[order, None]
        for local, (start, stop) in enumerate(pairwise(bounds)):
            if start == stop:
                continue
            rows = row[start:stop]
            hidden = gated_hidden(x[rows], self._up[local], self._limit) * share[start:stop]
            routed.index_add_(0, rows, (hidden.to(x.dtype) @ self._down[local]).float())
        return routed.to(x.dtype)


def host_reads(config: ModelConfig, group: ExpertGroup) -> str | None:
    """Why a rank's experts make the host wait for the device, so that no graph can hold them; None if not."""
    count = len(group.place.local_experts(config.n_routed_experts))
    if count <= _DENSE_MAX_EXPERTS:
        return None
    return f"{count} experts on a rank, more than {_DENSE_MAX_EXPERTS}, are looped over by their row counts"


def _gate_up(expert: WeightReader) -> torch.Tensor:
    return torch.cat((expert.matrix("w1.weight"), expert.matrix("w3.weight")))
