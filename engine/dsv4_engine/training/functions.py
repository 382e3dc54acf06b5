"""The differentiable mathematics of DSV4 over whole sequences, as functions of tensors.

They are functions, not methods, so that `compiled` can fuse each of them once for all layers. What they compute is
`dsv4_engine.model` (DeepSeek-V4 report, arXiv 2606.19348); a test holds both to the same logits.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn import functional as F

from dsv4_engine.config import CSA
from dsv4_engine.model.moe import swiglu
from dsv4_engine.training.compiling import compiled

Rotation = tuple[torch.Tensor, torch.Tensor]
"""Cosines and sines, both (T, n), of the angles at which n pairs turn at each position."""


def rotate(x: torch.Tensor, by: Rotation, *, inverse: bool = False) -> torch.Tensor:
    """Turn the last 2n values of x (B, T, d) or (B, T, H, d), interleaved pairs."""
    cos, sin = (angle.unsqueeze(-2) if x.ndim == 4 else angle for angle in by)
    sin = -sin if inverse else sin
    plain, tail = x.split((x.shape[-1] - 2 * cos.shape[-1], 2 * cos.shape[-1]), -1)
    even, odd = tail.float().unflatten(-1, (-1, 2)).unbind(-1)
    turned = torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)
    return torch.cat((plain, turned.to(x.dtype)), -1)


def norm(x: torch.Tensor, weight: torch.Tensor | None, eps: float) -> torch.Tensor:
    """RMS norm in float32, cast back."""
    wide = x.float()
    normed = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps)
    return (normed if weight is None else normed * weight).to(x.dtype)


def doubly_stochastic(logits: torch.Tensor, iterations: int, eps: float) -> torch.Tensor:
    """Sinkhorn over the first two dimensions (source, destination) of (hc, hc, N); last of all the sources sum to 1."""
    matrix = torch.softmax(logits, 1) + eps
    matrix = matrix / (matrix.sum(0, keepdim=True) + eps)
    for _ in range(iterations - 1):
        matrix = matrix / (matrix.sum(1, keepdim=True) + eps)
        matrix = matrix / (matrix.sum(0, keepdim=True) + eps)
    return matrix


def stream_features(streams: torch.Tensor, fn: torch.Tensor, eps: float) -> torch.Tensor:
    """(N, hc, D) -> (N, outputs) float32, scaled by the streams' common inverse RMS."""
    flat = streams.flatten(1).float()
    return F.linear(flat, fn) * torch.rsqrt(flat.square().mean(-1, keepdim=True) + eps)


def read_streams(
    streams: torch.Tensor,
    fn: torch.Tensor,
    base: torch.Tensor,
    scale: torch.Tensor,
    *,
    iterations: int,
    rms_eps: float,
    hc_eps: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(N, hc, D) -> what a half-block reads (N, D), its output's weights (N, hc), and the streams' own (hc, hc, N)."""
    hc = streams.shape[1]
    features = stream_features(streams, fn, rms_eps)
    pre = torch.sigmoid(features[:, :hc] * scale[0] + base[:hc]) + hc_eps
    post = 2 * torch.sigmoid(features[:, hc : 2 * hc] * scale[1] + base[hc : 2 * hc])
    mixing = features[:, 2 * hc :] * scale[2] + base[2 * hc :]
    comb = doubly_stochastic(mixing.T.reshape(hc, hc, -1), iterations, hc_eps)
    return (pre[:, :, None] * streams.float()).sum(1), post, comb


def write_streams(output: torch.Tensor, streams: torch.Tensor, post: torch.Tensor, comb: torch.Tensor) -> torch.Tensor:
    """New streams (N, hc, D): each takes its share of `output` (N, D) and of every old stream."""
    wide, added = streams.float(), output.float()
    hc = streams.shape[1]
    mixed = [post[:, k, None] * added + sum(comb[j, k, :, None] * wide[:, j] for j in range(hc)) for k in range(hc)]
    return torch.stack(mixed, 1).to(streams.dtype)


def collapse(
    streams: torch.Tensor, fn: torch.Tensor, base: torch.Tensor, scale: torch.Tensor, *, rms_eps: float, hc_eps: float
) -> torch.Tensor:
    """The head's weighted sum of (N, hc, D) streams: (N, D)."""
    weights = torch.sigmoid(stream_features(streams, fn, rms_eps) * scale + base) + hc_eps
    return (weights[:, :, None] * streams.float()).sum(1).to(streams.dtype)


def pooled(kv: torch.Tensor, score: torch.Tensor, ape: torch.Tensor, *, ratio: int) -> torch.Tensor:
    """Entries (B, T / ratio, d) of kv and score (B, T, d), or (B, T, 2d) where ratio-4 windows overlap; float32."""
    kv = kv.float().unflatten(1, (-1, ratio))
    score = score.float().unflatten(1, (-1, ratio)) + ape
    if ratio == CSA:
        width = kv.shape[-1] // 2
        kv = torch.cat((_window_before(kv[..., :width], 0.0), kv[..., width:]), 2)
        score = torch.cat((_window_before(score[..., :width], float("-inf")), score[..., width:]), 2)
    return (torch.softmax(score, 2) * kv).sum(2)


def _window_before(windows: torch.Tensor, first: float) -> torch.Tensor:
    return torch.cat((torch.full_like(windows[:, :1], first), windows[:, :-1]), 1)


def index_scores(query: torch.Tensor, keys: torch.Tensor, head_weights: torch.Tensor) -> torch.Tensor:
    """query (B, T, H, d), keys (B, E, d), head_weights (B, T, H) with their scale -> (B, T, E) float32."""
    per_head = torch.einsum("bthd,bed->bthe", query, keys.to(query.dtype)).relu()
    return torch.einsum("bth,bthe->bte", head_weights.to(per_head.dtype), per_head).float()


def joint_softmax(
    local: torch.Tensor,
    own: Sequence[torch.Tensor],
    far: torch.Tensor | None,
    sink: torch.Tensor,
    allowed: torch.Tensor | None,
    *,
    window: int,
    scale: float,
) -> tuple[torch.Tensor, list[torch.Tensor], torch.Tensor | None]:
    """Weights of one softmax over the window, single keys, compressed entries, and a sink that takes its share.

    local (B, T / window, window, H, 2 window): scores of each row's own window of keys and the one before. own[m]
    (B, T, H): of a key at position t - m that stands in for the window's. far (B, T, H, E), where allowed (B or 1, T,
    E). sink (H,). Weights in local's dtype.
    """
    blocks = local.shape[1]
    place = torch.arange(window, device=local.device)
    back = place[:, None] + window - torch.arange(2 * window, device=local.device)
    seen = (back >= len(own)) & (back < window)
    later = torch.arange(blocks, device=local.device)[:, None, None] > 0
    seen = seen & (later | (torch.arange(2 * window, device=local.device) >= window))
    near = (local.float() * scale).masked_fill(~seen[:, :, None], float("-inf")).flatten(1, 2)
    rows = torch.arange(near.shape[1], device=local.device)[:, None]
    single = [(score.float() * scale).masked_fill(rows < m, float("-inf")) for m, score in enumerate(own)]
    most = torch.maximum(near.amax(-1), sink.float())
    for score in single:
        most = torch.maximum(most, score)
    if far is not None and allowed is not None:
        far = (far.float() * scale).masked_fill(~allowed[:, :, None], float("-inf"))
        most = torch.maximum(most, far.amax(-1))
    most = most.detach()
    near = torch.exp(near - most[..., None])
    single = [torch.exp(score - most) for score in single]
    total = near.sum(-1) + torch.exp(sink.float() - most)
    for weight in single:
        total = total + weight
    if far is not None:
        far = torch.exp(far - most[..., None])
        total = total + far.sum(-1)
        far = (far / total[..., None]).to(local.dtype)
    near = (near / total[..., None]).to(local.dtype).unflatten(1, (-1, window))
    return near, [(weight / total).to(local.dtype) for weight in single], far


def attend(
    query: torch.Tensor,
    kv: torch.Tensor,
    sink: torch.Tensor,
    entries: torch.Tensor | None,
    allowed: torch.Tensor | None,
    own: Sequence[torch.Tensor],
    *,
    window: int,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """One softmax over the window, compressed entries and a sink of zero value.

    query (B, T, H, d); kv (B, T, d), key and value in one; entries (B, E, d) with allowed (B or 1, T, E) bool. `own`
    are keys (B, T, d) that stand in for the newest of kv: own[m] of row t for position t - m. T is a multiple of the
    window. Returns (B, T, H, d), and the entries' weights (B, T, E) averaged over heads, without gradient.

    Only `joint_softmax` is fused. Compiled as a whole, with one softmax over an odd number of columns, torch 2.11 on an
    H200 made a backward pass that read memory which nobody had written: gradients were right in a fresh process and
    off by orders later. Filling free memory with large numbers before a step shows it.
    """
    rows, keys = query.unflatten(1, (-1, window)), kv.unflatten(1, (-1, window))
    keys = torch.cat((torch.cat((torch.zeros_like(keys[:, :1]), keys[:, :-1]), 1), keys), 2)
    local = torch.einsum("bnqhd,bnkd->bnqhk", rows, keys)
    single = [torch.einsum("bthd,btd->bth", query, other) for other in own]
    far = None if entries is None else torch.einsum("bthd,bed->bthe", query, entries.to(query.dtype))
    near, single, far = compiled(joint_softmax)(local, single, far, sink, allowed, window=window, scale=scale)
    mixed = torch.einsum("bnqhk,bnkd->bnqhd", near, keys).flatten(1, 2)
    for weight, other in zip(single, own, strict=True):
        mixed = mixed + weight[..., None] * other[:, :, None]
    if far is None or entries is None:
        return mixed.contiguous(), None
    mixed = mixed + torch.einsum("bthe,bed->bthd", far, entries.to(far.dtype))
    return mixed.contiguous(), far.detach().mean(2).float()


def routed_weights(scores: torch.Tensor, chosen: torch.Tensor, *, scaling: float) -> torch.Tensor:
    """Dense (N, experts) weights of the chosen experts (N, k): their scores' shares, times `scaling`."""
    picked = scores.gather(1, chosen)
    shares = picked / picked.sum(-1, keepdim=True) * scaling
    return torch.zeros_like(scores).scatter(1, chosen, shares)


def mixture(
    x: torch.Tensor,
    share: torch.Tensor,
    gate_up: torch.Tensor,
    down: torch.Tensor,
    *,
    limit: float,
) -> torch.Tensor:
    """All experts on all rows x (N, D): gate_up (E, 2, I, D), down (E, D, I), share (N, E) -> (N, D)."""
    experts, _, inner, _ = gate_up.shape
    gate, up = F.linear(x, gate_up.flatten(0, 2)).unflatten(1, (experts, 2, inner)).unbind(2)
    hidden = (swiglu(gate, up, limit) * share[..., None]).to(gate.dtype)
    return hidden.flatten(1) @ down.transpose(1, 2).flatten(0, 1).to(hidden.dtype)


def soft_cross_entropy(logits: torch.Tensor, target_logits: torch.Tensor) -> torch.Tensor:
    """Cross-entropy (N,) in nats of logits against the softmax of other logits, which get no gradient."""
    return -(torch.softmax(target_logits.detach().float(), -1) * torch.log_softmax(logits.float(), -1)).sum(-1)


def restricted_divergence(weights: torch.Tensor, scores: torch.Tensor, allowed: torch.Tensor) -> torch.Tensor:
    """KL (scalar, nats) from attention's weights (B, T, E) on allowed entries to the softmax of scores over the same.

    So trained in the DeepSeek-V3.2 report (arXiv 2512.02556). Rows with at most one entry teach nothing, do not count.
    """
    total = weights.sum(-1, keepdim=True)
    target = weights / total.clamp(min=1e-9)
    log_scores = torch.log_softmax(scores.masked_fill(~allowed, -1e9), -1)
    row = (torch.xlogy(target, target.clamp(min=1e-20)) - target * log_scores).sum(-1)
    counts = (allowed.sum(-1) > 1).expand_as(row).float()
    return (row * counts).sum() / counts.sum().clamp(min=1)
