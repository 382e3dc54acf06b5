"""How large the caches are made: by a number of pages, by a budget, or for every request at its longest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch

from dsv4_engine.cache.budget import fit_shape, fraction_of_memory
from dsv4_engine.cache.layout import CacheLayout, CacheShape
from dsv4_engine.config import SLIDING, ModelConfig
from dsv4_engine.options import PAGES_PER_TAIL, EngineOptions


def cache_shape(
    options: EngineOptions, config: ModelConfig, weights: Mapping[str, torch.Tensor], device: torch.device
) -> CacheShape:
    """The caches' shape for one rank; EngineError where not even one request would fit."""
    shape = CacheShape(
        max_requests=options.max_requests,
        context_len=options.resolve_context_len(config),
        num_draft_tokens=options.num_drafts + 1,
        page_size=options.page_size,
        num_pages=options.num_pages,
    )
    budget = _budget(options, weights, device)
    if budget is None:
        pages = CacheLayout.plan(config, shape).num_pages - 1
        return replace(shape, num_tails=options.tails_for(pages))
    ratios = (*config.compress_ratios[: config.num_hidden_layers], *((SLIDING,) if config.has_mtp else ()))
    chosen = options.radix and options.num_tails is None
    shape = replace(shape, num_tails=0 if chosen else options.tails_for(0))
    most = None if options.radix else options.max_requests * shape.pages_per_request
    return fit_shape(
        config,
        shape,
        ratios,
        dtype=options.torch_dtype,
        budget=budget,
        pages_per_tail=PAGES_PER_TAIL if chosen else 0,
        most_pages=most,
    )


def _budget(options: EngineOptions, weights: Mapping[str, torch.Tensor], device: torch.device) -> int | None:
    """Bytes for the caches of this rank. A share of memory is of all that is free before the weights are there."""
    if options.cache_bytes is not None:
        return options.cache_bytes
    if options.mem_fraction is None:
        return None
    return fraction_of_memory(options.mem_fraction, device) - sum(tensor.nbytes for tensor in weights.values())
