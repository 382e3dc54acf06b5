"""Single forward passes against the golden numbers: target, MTP layer, layer by layer, and the quantised weights."""

# dsv4prof: allow-file[DSV101,DSV102,DSV108] compares results offline, never in a serving step
from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch.nn import functional as F

from dsv4_engine.batch import ForwardBatch
from dsv4_engine.cache.layout import CacheShape
from dsv4_engine.check.batches import rows_batch
from dsv4_engine.check.bounds import Bounds, close_call
from dsv4_engine.check.golden import GoldenSet
from dsv4_engine.check.ledger import Ledger
from dsv4_engine.check.rank import CheckRank
from dsv4_engine.check.tensors import GoldenPrompt
from dsv4_engine.checkpoint.load import load_checkpoint
from dsv4_engine.hooks import NullHooks
from dsv4_engine.parallel.groups import ParallelGroups
from dsv4_engine.phase import Phase
from dsv4_engine.runner import ModelRunner

_MTP_QUANTITIES = ("mtp_logits", "mtp_last_streams", "mtp_chain", "mtp_chain_logits")
_PROMPT_QUANTITIES = ("input_ids", "logits", "last_streams", "greedy", "greedy_logits", *_MTP_QUANTITIES)


def check_prompts(golden: GoldenSet, rank: CheckRank, ledger: Ledger) -> None:
    """Every prompt alone through target and MTP layer, then all of them decoded together."""
    runner, bounds = make_runner(golden, rank), prompt_bounds(golden)
    chain_length = golden.chain_length if golden.config.has_mtp else 0
    first_logits = [
        _check_prompt(runner, prompt, slot, rank.device, ledger, bounds, chain_length=chain_length)
        for slot, prompt in enumerate(golden.prompts, 1)
    ]
    _check_decode(runner, golden, first_logits, rank.device, ledger, bounds)
    for name in golden.missing_prompts:
        ledger.mismatch("logits", name, "listed in the manifest, missing from the set", bound=bounds.of("logits"))
    if not golden.config.has_mtp:
        for quantity in _MTP_QUANTITIES:
            _without_mtp(quantity, golden.prompts, ledger)
    unknown = sorted({key for prompt in golden.prompts for key in prompt.tensors} - set(_PROMPT_QUANTITIES))
    for quantity in unknown:
        ledger.absent(quantity, "in the set, but unknown here: not compared")


def prompt_bounds(golden: GoldenSet) -> Bounds:
    """Bounds of what the set's prompts give."""
    return Bounds(item for prompt in golden.prompts for item in prompt.tensors.items())


def _without_mtp(quantity: str, prompts: Sequence[GoldenPrompt], ledger: Ledger) -> None:
    holder = next((prompt.name for prompt in prompts if quantity in prompt.tensors), None)
    if holder is None:
        ledger.absent(quantity, "the model has no MTP layer")
    else:
        ledger.mismatch(quantity, holder, "in the set, but not computed: the config has no MTP layer")


def check_trace(golden: GoldenSet, rank: CheckRank, ledger: Ledger) -> None:
    """One prompt layer by layer."""
    if golden.trace is None:
        ledger.absent("trace", "the set has no trace.safetensors")
        return
    ids = golden.trace["input_ids"]
    runner = make_runner(golden, rank, context_len=len(ids))
    prompt = GoldenPrompt(name="trace", tensors={"input_ids": ids})
    actual = _with_sorted_experts(runner.trace_target(_prefill(prompt, 1, rank.device)))
    expected = _with_sorted_experts({key: value for key, value in golden.trace.items() if key != "input_ids"})
    bounds = Bounds((_place(key)[1], values) for key, values in expected.items())
    for key in sorted(actual.keys() | expected.keys()):
        layer, quantity = _place(key)
        _check_traced(ledger, quantity, layer, actual.get(key), expected.get(key), bounds)


def _place(key: str) -> tuple[str, str]:
    """Layer and quantity of a trace key."""
    layer, name = key.split(".", 1) if "." in key else ("model", key)
    return layer, f"trace {name}"


def _check_traced(
    ledger: Ledger,
    quantity: str,
    layer: str,
    actual: torch.Tensor | None,
    expected: torch.Tensor | None,
    bounds: Bounds,
) -> None:
    if actual is None:
        ledger.mismatch(quantity, layer, "in the set, but this model has no such quantity here")
    elif quantity.endswith("index_topk") and expected is not None:
        ledger.exact(quantity, layer, *_as_sets(actual, expected))
    elif not actual.is_floating_point():
        ledger.exact(quantity, layer, actual, expected)
    else:
        ledger.close(quantity, layer, actual, expected, bounds.of(quantity))


def check_quantised(golden: GoldenSet, rank: CheckRank, ledger: Ledger) -> None:
    """The same model stored as fp8 and mxfp4, computed with its dequantised weights."""
    if golden.quant is None:
        ledger.absent("quant logits", "the set has no quant/")
        return
    longest = max(len(prompt.ids) for prompt in golden.quant)
    runner = make_runner(golden, rank, context_len=longest, quantised=True)
    bounds = Bounds((f"quant {name}", values) for prompt in golden.quant for name, values in prompt.tensors.items())
    for prompt in golden.quant:
        output = runner.forward_target(_prefill(prompt, 1, rank.device), logits_rows=None)
        ledger.close("quant logits", prompt.name, output.logits, prompt.get("logits"), bounds.of("quant logits"))
    for quantity in sorted({key for prompt in golden.quant for key in prompt.tensors} - {"input_ids", "logits"}):
        ledger.absent(f"quant {quantity}", "in the set, but unknown here: not compared")


def make_runner(
    golden: GoldenSet, rank: CheckRank, *, context_len: int | None = None, quantised: bool = False
) -> ModelRunner:
    """The set's model in fp32, with a cache slot for every prompt."""
    folder = golden.quant_folder if quantised else golden.folder
    config, weights = load_checkpoint(folder, place=ParallelGroups.tensor_parallel(rank.group).place)
    shape = CacheShape(
        max_requests=len(golden.prompts),
        context_len=context_len or golden.context_len,
        num_draft_tokens=golden.num_drafts + 1,
    )
    return ModelRunner(
        config,
        weights,
        groups=ParallelGroups.tensor_parallel(rank.group),
        device=rank.device,
        dtype=torch.float32,
        cache=shape,
        exact_num_tokens=True,
        hooks=NullHooks(),
    )


def _prefill(prompt: GoldenPrompt, slot: int, device: torch.device) -> ForwardBatch:
    return rows_batch([slot], [0], [prompt.ids], Phase.PREFILL, device)


def _check_prompt(
    runner: ModelRunner,
    prompt: GoldenPrompt,
    slot: int,
    device: torch.device,
    ledger: Ledger,
    bounds: Bounds,
    *,
    chain_length: int,
) -> torch.Tensor:
    """Compare one prompt's passes; returns the target's logits (V,) after it. chain_length: 0 without MTP layer."""

    def close(quantity: str, actual: torch.Tensor) -> None:
        ledger.close(quantity, prompt.name, actual, prompt.get(quantity), bounds.of(quantity))

    batch = _prefill(prompt, slot, device)
    output = runner.forward_target(batch, logits_rows=None)
    close("logits", output.logits)
    close("last_streams", output.streams[-1])
    first = int(output.logits[-1].argmax())
    if not chain_length:
        return output.logits[-1]
    shifted = replace(batch, input_ids=torch.tensor((*prompt.ids[1:], first), device=device))
    own = runner.forward_mtp(shifted, output.streams, logits_rows=None)
    close("mtp_logits", own.logits)
    close("mtp_last_streams", own.streams[-1])
    chain_logits = _chain_logits(runner, batch, own.logits[-1:], own.streams[-1:], chain_length)
    close("mtp_chain_logits", chain_logits)
    drafts, expected = chain_logits.argmax(-1), prompt.get("mtp_chain")
    excuse = close_call(drafts, expected, prompt.get("mtp_chain_logits"), bounds.of("mtp_chain_logits"))
    ledger.exact("mtp_chain", prompt.name, drafts, expected, note=excuse)
    return output.logits[-1]


def _chain_logits(
    runner: ModelRunner, prompt: ForwardBatch, logits: torch.Tensor, streams: torch.Tensor, length: int
) -> torch.Tensor:
    """(length, V): the MTP layer's logits after the prompt, as it feeds on its own guesses."""
    rows, device = [logits], logits.device
    for offset in range(length - 1):
        guess = rows[-1].argmax(-1).tolist()
        batch = rows_batch(prompt.req_slots.tolist(), [prompt.num_tokens + offset], [guess], Phase.DRAFT, device)
        output = runner.forward_mtp(batch, streams, logits_rows=None)
        rows.append(output.logits)
        streams = output.streams
    return torch.cat(rows)


def _check_decode(
    runner: ModelRunner,
    golden: GoldenSet,
    first_logits: Sequence[torch.Tensor],
    device: torch.device,
    ledger: Ledger,
    bounds: Bounds,
) -> None:
    """greedy_logits of all prompts, decoded in one batch, each fed what it chose itself."""
    slots = range(1, len(golden.prompts) + 1)
    lengths = [len(prompt.ids) for prompt in golden.prompts]
    steps = [torch.stack(list(first_logits))]
    for step in range(golden.num_generated - 1):
        newest = steps[-1].argmax(-1)[:, None].tolist()
        batch = rows_batch(slots, [length + step for length in lengths], newest, Phase.DECODE, device)
        steps.append(runner.forward_target(batch, logits_rows=None).logits)
    for prompt, decoded in zip(golden.prompts, torch.stack(steps, 1), strict=True):
        ledger.close("greedy_logits", prompt.name, decoded, prompt.get("greedy_logits"), bounds.of("greedy_logits"))


def _with_sorted_experts(trace: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Experts of a row ascending, with their weights: which are chosen is exact, their order decides nothing."""
    ordered = dict(trace)
    for key, experts in trace.items():
        layer, _, name = key.rpartition(".")
        weights = trace.get(f"{layer}.router_weights")
        if name == "router_indices" and weights is not None and weights.shape == experts.shape:
            ordered[key], order = experts.sort(dim=-1, stable=True)
            ordered[f"{layer}.router_weights"] = weights.gather(-1, order)
    return ordered


def _as_sets(actual: torch.Tensor, expected: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Selected entries of each row ascending, padded with -1 to one width: sets have no order and no free places."""
    width = max(actual.shape[-1], expected.shape[-1])
    padded = [F.pad(picked, (0, width - picked.shape[-1]), value=-1) for picked in (actual, expected)]
    return padded[0].sort(dim=-1).values, padded[1].sort(dim=-1).values
