"""DSV4 computed the slow way, for comparison: float64, one token at a time, every key recomputed, no caches.

It shares only the config with the engine, and follows the architecture's formulas token by token.
"""

from __future__ import annotations

import math

import torch

from dsv4_engine.config import ModelConfig

Weights = dict[str, torch.Tensor]


class NaiveModel:
    def __init__(self, config: ModelConfig, weights: Weights) -> None:
        self.c = config
        self.w = {name: t if t.dtype == torch.int64 else t.double() for name, t in weights.items()}

    def target(self, ids: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits (T, V) and last streams (T, hc, D)."""
        streams = [self.w["embed.weight"][token].repeat(self.c.hc_mult, 1) for token in ids]
        for layer in range(self.c.num_hidden_layers):
            streams = self._block(f"layers.{layer}.", layer, streams, ids)
        return self._logits("", streams), torch.stack(streams)

    def mtp(self, streams: torch.Tensor, next_ids: list[int]) -> torch.Tensor:
        """Logits (T, V) for the token after `next_ids`."""
        return self.mtp_with_streams(streams, next_ids)[0]

    def mtp_with_streams(self, streams: torch.Tensor, next_ids: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
        """The same logits, and the MTP layer's own streams (T, hc, D)."""
        w = {name.removeprefix("mtp.0."): t for name, t in self.w.items() if name.startswith("mtp.0.")}
        inputs = []
        for old, token in zip(streams.double(), next_ids, strict=True):
            embedded = w["e_proj.weight"] @ self._norm(self.w["embed.weight"][token], w["enorm.weight"])
            rows = [embedded + w["h_proj.weight"] @ self._norm(stream, w["hnorm.weight"]) for stream in old]
            inputs.append(torch.stack(rows))
        own = self._block("mtp.0.", self.c.num_hidden_layers, inputs, next_ids)
        return self._logits("mtp.0.", own), torch.stack(own)

    def _norm(self, x: torch.Tensor, weight: torch.Tensor | float = 1.0) -> torch.Tensor:
        return x / (x.pow(2).mean() + self.c.rms_norm_eps).sqrt() * weight

    def _logits(self, prefix: str, streams: list[torch.Tensor]) -> torch.Tensor:
        rows = []
        for x in streams:
            flat = x.flatten()
            m = self.w[prefix + "hc_head_fn"] @ self._norm(flat)
            weights = torch.sigmoid(m * self.w[prefix + "hc_head_scale"] + self.w[prefix + "hc_head_base"])
            mixed = sum((weight + self.c.hc_eps) * stream for weight, stream in zip(weights, x, strict=True))
            rows.append(self.w["head.weight"] @ self._norm(mixed, self.w[prefix + "norm.weight"]))
        return torch.stack(rows)

    def _block(self, prefix: str, layer: int, streams: list[torch.Tensor], ids: list[int]) -> list[torch.Tensor]:
        mixes = [self._mix(prefix + "hc_attn", x) for x in streams]
        normed = [self._norm(mix[0], self.w[prefix + "attn_norm.weight"]) for mix in mixes]
        outputs = self._attention(prefix + "attn.", self.c.compress_ratios[layer], normed)
        streams = [self._merge(f, x, mix) for f, x, mix in zip(outputs, streams, mixes, strict=True)]
        result = []
        for x, token in zip(streams, ids, strict=True):
            mix = self._mix(prefix + "hc_ffn", x)
            f = self._experts(prefix + "ffn.", self._norm(mix[0], self.w[prefix + "ffn_norm.weight"]), layer, token)
            result.append(self._merge(f, x, mix))
        return result

    def _mix(self, name: str, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        hc, eps = self.c.hc_mult, self.c.hc_eps
        m = self.w[name + "_fn"] @ self._norm(x.flatten())
        scale, base = self.w[name + "_scale"], self.w[name + "_base"]
        pre = torch.sigmoid(m[:hc] * scale[0] + base[:hc]) + eps
        post = 2 * torch.sigmoid(m[hc : 2 * hc] * scale[1] + base[hc : 2 * hc])
        comb = torch.softmax((m[2 * hc :] * scale[2] + base[2 * hc :]).view(hc, hc), 1) + eps
        comb = comb / (comb.sum(0, keepdim=True) + eps)
        for _ in range(self.c.hc_sinkhorn_iters - 1):
            comb = comb / (comb.sum(1, keepdim=True) + eps)
            comb = comb / (comb.sum(0, keepdim=True) + eps)
        return sum(pre[k] * x[k] for k in range(hc)), post, comb

    def _merge(self, f: torch.Tensor, x: torch.Tensor, mix: tuple[torch.Tensor, ...]) -> torch.Tensor:
        _, post, comb = mix
        hc = range(self.c.hc_mult)
        return torch.stack([post[k] * f + sum(comb[j, k] * x[j] for j in hc) for k in hc])

    def _rope(self, x: torch.Tensor, position: int, ratio: int, sign: float = 1.0) -> torch.Tensor:
        dim, x = self.c.qk_rope_head_dim, x.clone()
        start = x.shape[-1] - dim
        for i in range(dim // 2):
            angle = sign * position * self._frequency(i, ratio)
            a, b = x[..., start + 2 * i].clone(), x[..., start + 2 * i + 1].clone()
            x[..., start + 2 * i] = a * math.cos(angle) - b * math.sin(angle)
            x[..., start + 2 * i + 1] = a * math.sin(angle) + b * math.cos(angle)
        return x

    def _frequency(self, i: int, ratio: int) -> float:
        dim, yarn = self.c.qk_rope_head_dim, self.c.rope_scaling
        base = self.c.compress_rope_theta if ratio else self.c.rope_theta
        plain = base ** (-2 * i / dim)
        if not ratio or yarn is None:
            return plain

        def pair(turns: float) -> float:
            return dim * math.log(yarn.original_max_position_embeddings / (2 * math.pi * turns)) / (2 * math.log(base))

        low, high = max(math.floor(pair(yarn.beta_fast)), 0), min(math.ceil(pair(yarn.beta_slow)), dim - 1)
        ramp = min(max((i - low) / (high - low or 0.001), 0), 1)
        return plain / yarn.factor * ramp + plain * (1 - ramp)

    def _attention(self, p: str, ratio: int, xs: list[torch.Tensor]) -> list[torch.Tensor]:
        c, w = self.c, self.w
        latents = [self._norm(w[p + "wq_a.weight"] @ x, w[p + "q_norm.weight"]) for x in xs]
        kvs = [
            self._rope(self._norm(w[p + "wkv.weight"] @ x, w[p + "kv_norm.weight"]), t, ratio) for t, x in enumerate(xs)
        ]
        entries = self._compressed(p + "compressor.", ratio, c.head_dim, xs) if ratio else []
        index_keys = self._compressed(p + "indexer.compressor.", 4, c.index_head_dim, xs) if ratio == 4 else []
        outputs = []
        for t, x in enumerate(xs):
            keys = kvs[max(0, t - c.sliding_window + 1) : t + 1]
            visible = range((t + 1) // ratio) if ratio else range(0)
            if ratio == 4:
                visible = self._chosen(p + "indexer.", x, latents[t], index_keys[: len(visible)], t)
            keys = torch.stack(keys + [entries[entry] for entry in visible])
            heads = (w[p + "wq_b.weight"] @ latents[t]).view(c.num_attention_heads, c.head_dim)
            mixed = []
            for head, sink in zip(heads, w[p + "attn_sink"], strict=True):
                scores = keys @ self._rope(self._norm(head), t, ratio) / math.sqrt(c.head_dim)
                top = max(scores.max(), sink)
                weights = (scores - top).exp()
                value = (weights / (weights.sum() + (sink - top).exp())) @ keys
                mixed.append(self._rope(value, t, ratio, -1.0))
            groups = torch.stack(mixed).view(c.o_groups, -1)
            low = w[p + "wo_a.weight"].view(c.o_groups, c.o_lora_rank, -1)
            outputs.append(w[p + "wo_b.weight"] @ torch.cat([low[g] @ groups[g] for g in range(c.o_groups)]))
        return outputs

    def _compressed(self, p: str, ratio: int, dim: int, xs: list[torch.Tensor]) -> list[torch.Tensor]:
        entries = []
        for start in range(0, len(xs) - ratio + 1, ratio):
            slots = []
            for t in range(start - (ratio if ratio == 4 else 0), start + ratio):
                if t < 0:
                    continue
                kv = self.w[p + "wkv.weight"] @ xs[t]
                score = self.w[p + "wgate.weight"] @ xs[t] + self.w[p + "ape"][t % ratio]
                half = slice(dim, 2 * dim) if ratio == 4 and t >= start else slice(0, dim)
                slots.append((kv[half], score[half]))
            weights = torch.softmax(torch.stack([score for _, score in slots]), 0)
            pooled = (weights * torch.stack([kv for kv, _ in slots])).sum(0)
            entries.append(self._rope(self._norm(pooled, self.w[p + "norm.weight"]), start, ratio))
        return entries

    def _chosen(self, p: str, x: torch.Tensor, latent: torch.Tensor, keys: list[torch.Tensor], t: int) -> list[int]:
        c = self.c
        queries = self._rope((self.w[p + "wq_b.weight"] @ latent).view(c.index_n_heads, c.index_head_dim), t, 4)
        weights = self.w[p + "weights_proj.weight"] @ x / math.sqrt(c.index_head_dim * c.index_n_heads)
        scores = [float((weights * (queries @ key).clamp(min=0)).sum()) for key in keys]
        return sorted(range(len(keys)), key=lambda entry: -scores[entry])[: c.index_topk]

    def _experts(self, p: str, x: torch.Tensor, layer: int, token: int) -> torch.Tensor:
        c, w = self.c, self.w
        scores = torch.log1p((w[p + "gate.weight"] @ x).exp()).sqrt()
        if layer < c.num_hash_layers:
            picked = w[p + "gate.tid2eid"][token].tolist()
        else:
            picked = (scores + w[p + "gate.bias"]).sort(descending=True).indices[: c.num_experts_per_tok].tolist()
        total = sum(scores[expert] for expert in picked)
        output = self._expert(p + "shared_experts.", x, 1.0)
        for expert in picked:
            weight = scores[expert] / total * c.routed_scaling_factor
            output = output + self._expert(f"{p}experts.{expert}.", x, weight)
        return output

    def _expert(self, p: str, x: torch.Tensor, weight: torch.Tensor | float) -> torch.Tensor:
        limit = self.c.swiglu_limit
        gate = (self.w[p + "w1.weight"] @ x).clamp(max=limit)
        up = (self.w[p + "w3.weight"] @ x).clamp(-limit, limit)
        return self.w[p + "w2.weight"] @ (gate * torch.sigmoid(gate) * up * weight)
