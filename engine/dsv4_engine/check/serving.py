"""The serving loop against the golden tokens: all prompts in chunks and batches, without drafts and with."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from dsv4_engine.check.bounds import close_call
from dsv4_engine.check.forwards import prompt_bounds
from dsv4_engine.check.golden import GoldenSet
from dsv4_engine.check.ledger import Ledger
from dsv4_engine.check.rank import CheckRank
from dsv4_engine.check.tensors import GoldenPrompt
from dsv4_engine.engine import Engine
from dsv4_engine.options import EngineOptions
from dsv4_engine.parallel.groups import ParallelGroups
from dsv4_engine.request import RequestResult


def check_serving(golden: GoldenSet, rank: CheckRank, ledger: Ledger) -> None:
    """Every prompt's greedy continuation, once without and once with drafts."""
    for prompt in golden.prompts:
        greedy, promised = prompt.get("greedy"), golden.manifest.num_generated
        if greedy is not None and promised not in (None, len(greedy)):
            ledger.mismatch("plain tokens", prompt.name, f"{len(greedy)} tokens, the manifest says {promised}")
    wanted = {prompt: golden.num_generated for prompt in golden.prompts if golden.num_generated}
    _check_tokens("plain tokens", golden, serve(golden, rank, wanted, num_drafts=0), ledger)
    if not golden.config.has_mtp:
        ledger.absent("mtp tokens", "the model has no MTP layer")
        return
    _check_tokens("mtp tokens", golden, serve(golden, rank, wanted, num_drafts=golden.num_drafts), ledger)


def serve(
    golden: GoldenSet, rank: CheckRank, wanted: Mapping[GoldenPrompt, int], *, num_drafts: int
) -> dict[str, RequestResult]:
    """Results by prompt name: for each prompt as many tokens as wanted, whatever they are."""
    options = EngineOptions(
        model=str(golden.folder),
        device=str(rank.device),
        num_drafts=num_drafts,
        context_len=golden.context_len,
        exact_num_tokens=True,
    )
    engine = Engine(options, groups=ParallelGroups.tensor_parallel(rank.group))
    ids = {
        prompt.name: engine.add(prompt.ids, max_new_tokens=count, ignore_eos=True) for prompt, count in wanted.items()
    }
    while engine.has_work:
        engine.step()
    assert engine.num_free_slots == options.max_requests, "a finished request kept its cache slot"
    return {name: engine.result(request) for name, request in ids.items()}


def _check_tokens(quantity: str, golden: GoldenSet, served: dict[str, RequestResult], ledger: Ledger) -> None:
    bound = prompt_bounds(golden).of("greedy_logits")
    for prompt in golden.prompts:
        tokens = torch.tensor(served[prompt.name].tokens if prompt.name in served else (), dtype=torch.int64)
        excuse = close_call(tokens, prompt.get("greedy"), prompt.get("greedy_logits"), bound)
        ledger.exact(quantity, prompt.name, tokens, prompt.get("greedy"), note=excuse)
