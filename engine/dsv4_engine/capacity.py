"""How large the caches are made: by a number of pages, by a budget, or for every request at its longest."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch

from dsv4_engine.cache.budget import fit_shape, fraction_of_memory
from dsv4_engine.cache.layout import CacheLayout, CacheShape
from dsv4_engine.config import SLIDING, ModelConfig
from dsv4_engine.options import PAGES_PER_TAIL, EngineOptions
from dsv4_engine.parallel.groups import ParallelGroups


def cache_shape(
    options: EngineOptions,
    config: ModelConfig,
    weights: Mapping[str, torch.Tensor],
    device: torch.device,
    groups: ParallelGroups,
) -> CacheShape:
    """The caches' shape for every rank; EngineError where not even one request would fit."""
    shape = CacheShape(
        max_requests=options.max_requests,
        context_len=options.resolve_context_len(config),
        num_draft_tokens=options.num_drafts + 1,
        page_size=options.page_size,
        num_pages=options.num_pages,
    )
    budget = _budget(options, weights, device, groups)
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


def _budget(
    options: EngineOptions, weights: Mapping[str, torch.Tensor], device: torch.device, groups: ParallelGroups
) -> int | None:
    """Bytes for the caches of a rank. A share of memory is of all that is free before the weights are there.

    Ranks schedule alike only with as many pages, so what the poorest of them has counts for all.
    """
    if options.cache_bytes is not None:
        return options.cache_bytes
    if options.mem_fraction is None:
        return None
    own = fraction_of_memory(options.mem_fraction, device) - sum(tensor.nbytes for tensor in weights.values())
    return min(budget for (budget,) in groups.exchange(own))
